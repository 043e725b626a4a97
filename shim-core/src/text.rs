//! Texts without memory of their own.

/// Takes a text piece by piece.
pub type Put<'a> = &'a mut dyn FnMut(&[u8]);

/// Reads decimal digits and nothing else.
pub(crate) fn number(text: &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for byte in text {
        let digit = byte.checked_sub(b'0').filter(|digit| *digit < 10)?;
        number = number.checked_mul(10)?.checked_add(digit.into())?;
    }
    if text.is_empty() { None } else { Some(number) }
}

pub(crate) fn decimal(mut number: u64, put: Put) {
    let mut digits = [0_u8; 20];
    let mut first = digits.len();
    for digit in digits.iter_mut().rev() {
        // A digit is less than 10.
        *digit = b'0'.wrapping_add((number % 10) as u8);
        number /= 10;
        first = first.wrapping_sub(1);
        if number == 0 {
            break;
        }
    }
    put(digits.get(first..).unwrap_or_default());
}
