//! Medians, quartiles, and how sure a median is. No distribution is assumed: launch times
//! have a long tail.

/// The value below which this share of the sorted values is, between two of them by
/// straight line.
pub fn quantile(sorted: &[f64], share: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let position = share * last as f64;
    let (low, high) = (position.floor() as usize, position.ceil() as usize);
    sorted[low] + (sorted[high] - sorted[low]) * (position - low as f64)
}

pub fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values
}

/// An interval that holds the median of what the values are drawn from in at least 95 of
/// 100 cases: two of the sorted values, by the binomial distribution. `None` for fewer than
/// six values, which cannot say so much.
pub fn median_interval(sorted: &[f64]) -> Option<(f64, f64)> {
    let count = sorted.len();
    // The chance that fewer than k values are below the median, for growing k.
    let mut below = 0.0;
    let mut chance = 0.5_f64.powi(i32::try_from(count).ok()?);
    let mut k = 0;
    while below + chance <= 0.025 {
        below += chance;
        chance *= (count - k) as f64 / (k + 1) as f64;
        k += 1;
    }
    // The k lowest and the k highest are left out.
    (k > 0).then(|| (sorted[k - 1], sorted[count - k]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_lie_between_values() {
        let values = sorted(vec![4.0, 1.0, 3.0, 2.0]);
        assert_eq!(quantile(&values, 0.0), 1.0);
        assert_eq!(quantile(&values, 0.5), 2.5);
        assert_eq!(quantile(&values, 1.0), 4.0);
        assert!(quantile(&[], 0.5).is_nan());
    }

    /// Known ranks of the 95 % interval of a median: n = 6 takes all, n = 10 the second to
    /// the ninth, n = 20 the sixth to the fifteenth.
    #[test]
    fn the_interval_of_a_median_has_the_known_ranks() {
        let ranks = |count: u32| {
            let values: Vec<f64> = (1..=count).map(f64::from).collect();
            median_interval(&values)
        };
        assert_eq!(ranks(5), None);
        assert_eq!(ranks(6), Some((1.0, 6.0)));
        assert_eq!(ranks(10), Some((2.0, 9.0)));
        assert_eq!(ranks(20), Some((6.0, 15.0)));
    }
}
