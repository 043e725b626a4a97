//! The rank variables that an unmodified `env://` program wants.

/// Where a task stands among all tasks of its step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ranks {
    /// RANK: the task's number in the step.
    pub rank: u32,
    /// WORLD_SIZE: number of tasks in the step.
    pub world_size: u32,
    /// Number of tasks of the step on this node.
    pub local_world_size: u32,
    /// NODE_RANK: the node's number in the step.
    pub node_rank: u32,
    /// MASTER_ADDR: the step's first host, where the node list tells it.
    pub master_addr: Option<String>,
    /// MASTER_PORT.
    pub master_port: u16,
}

impl Ranks {
    /// The first host of a Slurm node list such as `gpu[07-09],login1`: the node
    /// with number 0 in the step.
    pub fn first_host(node_list: &str) -> Option<String> {
        let mut host = String::new();
        let mut rest = node_list;
        // Every `[` opens a range list of which the first number is the host's.
        while let Some((before, behind)) = rest.split_once('[') {
            if let Some((first, _)) = before.split_once(',') {
                return finish(host, first);
            }
            let (ranges, after) = behind.split_once(']')?;
            host.push_str(before);
            host.push_str(first_number(ranges)?);
            rest = after;
        }
        finish(host, rest.split(',').next().unwrap_or_default())
    }
}

fn finish(mut host: String, rest: &str) -> Option<String> {
    host.push_str(rest);
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    (!host.is_empty() && host.chars().all(is_name)).then_some(host)
}

/// The first number of a range list such as `07-09,12`, with its zeros; `None` where
/// the range is none.
fn first_number(ranges: &str) -> Option<&str> {
    let range = ranges.split(',').next()?;
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    let number =
        |text: &str| text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok())?;
    let (low, high): (u64, u64) = (number(first)?, number(last)?);
    (low <= high).then_some(first)
}

/// The first of the ports that [`master_port`] gives. All are below the range
/// from which Linux takes ephemeral ports (32768 to 60999,
/// Documentation/networking/ip-sysctl.rst).
const FIRST_PORT: u32 = 15_000;
const PORTS: u32 = 15_000;

/// The port on which the tasks of a step meet, the same on every node and
/// different for steps that run side by side.
pub fn master_port(job: u32, step: u32) -> u16 {
    // 1009 is coprime with the number of ports: near job ids are far apart, and
    // the steps of one job follow each other.
    let offset = job.wrapping_mul(1009).wrapping_add(step) % PORTS;
    u16::try_from(FIRST_PORT + offset).unwrap_or(29_500)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_host_is_the_lists_first_whatever_its_form() {
        for (list, first) in [
            ("n0", "n0"),
            ("n[0-3]", "n0"),
            ("gpu[07-09,12],login1", "gpu07"),
            ("z1,a[1-2]", "z1"),
            ("rack[1-2]n[3-4]", "rack1n3"),
            ("host.example.org", "host.example.org"),
        ] {
            assert_eq!(Ranks::first_host(list).as_deref(), Some(first), "{list}");
        }
        for list in ["", ",", "n[", "n[3-1", "[]"] {
            assert_eq!(Ranks::first_host(list), None, "{list}");
        }
    }

    #[test]
    fn ports_stay_out_of_the_ephemeral_range_and_differ_for_neighbours() {
        for job in [0, 1, 4_294_967_295, 123_456] {
            for step in [0, 1, 0xffff_fff0] {
                assert!((15_000..30_000).contains(&master_port(job, step)), "{job}.{step}");
            }
            assert_ne!(master_port(job, 0), master_port(job, 1));
            assert_ne!(master_port(job, 0), master_port(job.wrapping_add(1), 0));
        }
    }
}
