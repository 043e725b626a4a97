//! gres.conf: which GPUs Slurm believes one node to have (gres.conf(5)).

use std::path::{Path, PathBuf};

use super::gres_line::{GresLine, parse_count};
use super::gres_rules::{GresRefusal, refusal};
use super::hosts::hosts;
use super::lines::{Line, Lines, ReadError};
use gpubind_core::node::IdSet;

/// No node has more device files in one line; a mistyped range must not fill the
/// memory.
const MOST_FILES: usize = 4096;

/// A GPU as gres.conf lists it; its position in the list is Slurm's index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GresGpu {
    /// The number of the line that lists it.
    pub line: usize,
    /// Its device files: one, or several with MultipleFiles; none where the line
    /// only counts.
    pub files: Vec<String>,
    /// `Cores=`: numbers of cores, not of CPUs, counted socket by socket.
    pub cores: Option<IdSet>,
    /// `Links=`: connections to each GPU, -1 for itself.
    pub links: Option<GresLinks>,
}

/// `Links=` of a GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GresLinks {
    /// As written.
    pub text: String,
    /// `None` where it is not a list of numbers with one -1, which Slurm ignores, or reads
    /// as a shorter one if an entry is empty.
    pub counts: Option<Vec<i64>>,
}

impl GresGpu {
    /// N of its /dev/nvidiaN, wherever that is.
    pub fn minor(&self) -> Option<u32> {
        self.files.iter().find_map(|file| {
            let (_, name) = file.rsplit_once('/')?;
            name.strip_prefix("nvidia")?.parse().ok()
        })
    }
}

/// gres.conf as it concerns one node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeGres {
    /// `AutoDetect=` of the node, in small letters, `off` left out.
    pub autodetect: Option<String>,
    /// The GPUs that are listed, in Slurm's order before AutoDetect sorts them.
    pub gpus: Vec<GresGpu>,
    /// The lines that list them.
    pub lines: Vec<GresLine>,
    /// Why slurmd refuses the file.
    pub refusal: Option<GresRefusal>,
    /// Lines that name nodes were passed over because the node's name is not known.
    pub passed_over: bool,
    /// The files that were read.
    pub files: Vec<PathBuf>,
}

/// Reads gres.conf for a node; without a name, the lines for all nodes.
///
/// # Errors
/// [`ReadError`] if the file cannot be read. Included files that cannot are left
/// out.
pub fn read(path: &Path, node: Option<&str>) -> Result<NodeGres, ReadError> {
    let Lines { lines, files, .. } = Lines::read(path)?;
    let gres = of_lines(&lines, node);
    Ok(NodeGres { refusal: refusal(&lines, &gres.lines), files, ..gres })
}

pub(super) fn of_lines(lines: &[Line], node: Option<&str>) -> NodeGres {
    let mut gres = NodeGres::default();
    let (mut for_all, mut for_node) = (None, None);
    for line in lines {
        let names = line.value("NodeName").map(hosts);
        let is_ours = match (&names, node) {
            (None, _) => true,
            (Some(names), Some(node)) => names.iter().any(|name| name == node),
            (Some(_), None) => {
                gres.passed_over = true;
                false
            }
        };
        if !is_ours {
            continue;
        }
        let detect = line.value("AutoDetect").map(str::to_ascii_lowercase);
        // The node's own AutoDetect wins, also where it is `off`.
        match names {
            Some(_) => for_node = detect.or(for_node),
            None => for_all = detect.or(for_all),
        }
        if line.value("Name").is_some_and(|name| name.eq_ignore_ascii_case("gpu")) {
            let gpus = gpus(line);
            gres.lines.push(GresLine {
                number: line.number,
                kind: line.value("Type").map(str::to_owned),
                devices: gpus.iter().filter(|gpu| !gpu.files.is_empty()).count(),
                count: line.value("Count").map(str::to_owned),
                has_both_files: files(line).is_some() && line.value("MultipleFiles").is_some(),
            });
            gres.gpus.extend(gpus);
        }
    }
    gres.autodetect = for_node.or(for_all).filter(|kind| kind != "off");
    gres
}

/// The GPUs of one line.
fn gpus(line: &Line) -> Vec<GresGpu> {
    let cores = line.value("Cores").or(line.value("CPUs"));
    let one = |files: Vec<String>| GresGpu {
        line: line.number,
        files,
        cores: cores.and_then(|list| list.parse().ok()),
        links: line.value("Links").or(line.value("Link")).map(links),
    };
    if let Some(files) = files(line) {
        return expand(files).into_iter().map(|file| one(vec![file])).collect();
    }
    if let Some(files) = line.value("MultipleFiles") {
        return vec![one(expand(files))];
    }
    let count = line.value("Count").map_or(Some(1), parse_count).unwrap_or(0);
    // With AutoDetect a line need not count: it only checks what is found.
    (0..count.min(MOST_FILES as u64)).map(|_| one(Vec::new())).collect()
}

fn files(line: &Line) -> Option<&str> {
    line.value("File").or(line.value("Files"))
}

/// Numbers from 0 on, and -1 for the GPU itself (src/interfaces/gres.c,
/// gres_links_validate).
fn links(list: &str) -> GresLinks {
    let numbers = list.split(',').map(|number| number.trim().parse().ok());
    let counts = numbers.collect::<Option<Vec<i64>>>().filter(|counts| {
        let own = counts.iter().filter(|count| **count == -1).count();
        own == 1 && counts.iter().all(|count| *count >= -1)
    });
    GresLinks { text: list.to_owned(), counts }
}

/// The names in a list such as `/dev/nvidia[0-3,7]`, in the list's own order, which
/// is Slurm's; a host list's reader would sort them.
pub fn expand(list: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut depth = 0_i32;
    let parts = list.split(|c: char| {
        depth += i32::from(c == '[') - i32::from(c == ']');
        c == ',' && depth == 0
    });
    for part in parts.map(str::trim).filter(|part| !part.is_empty()) {
        let bracket = part.split_once('[').and_then(|(before, rest)| {
            let (ranges, after) = rest.split_once(']')?;
            Some((before, ranges, after))
        });
        match bracket {
            None => names.push(part.to_owned()),
            Some((before, ranges, after)) => {
                let numbers = ranges.split(',').flat_map(range);
                names.extend(numbers.map(|number| format!("{before}{number}{after}")));
            }
        }
        names.truncate(MOST_FILES);
    }
    names
}

/// The numbers of `7` or `08-11`, with the leading zeros of the first.
fn range(range: &str) -> Vec<String> {
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    match (first.trim().parse::<usize>(), last.trim().parse::<usize>()) {
        (Ok(from), Ok(to)) => {
            let width = first.trim().len();
            (from..=to).take(MOST_FILES).map(|number| format!("{number:0width$}")).collect()
        }
        _ => vec![range.to_owned()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gres(text: &str, node: Option<&str>) -> NodeGres {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("gres.conf");
        std::fs::write(&file, text).unwrap();
        read(&file, node).unwrap()
    }

    fn minors(gres: &NodeGres) -> Vec<Option<u32>> {
        gres.gpus.iter().map(GresGpu::minor).collect()
    }

    #[test]
    fn files_keep_their_order() {
        let text = "Name=gpu Type=b File=/x/dev/nvidia[7,6,5-4]\nname=GPU file=/dev/nvidia[0-1],/dev/nvidia3\n";
        let found = gres(text, None);
        let expected = [7, 6, 0, 1, 3].map(Some);
        assert_eq!(minors(&found), expected, "a range that runs backwards is empty");
        assert_eq!(found.gpus[0].files, ["/x/dev/nvidia7"]);
        assert_eq!((found.gpus[0].line, found.gpus[4].line), (1, 2));
        assert_eq!(expand("a[08-11]b"), ["a08b", "a09b", "a10b", "a11b"]);
        assert_eq!(expand("/dev/nvidia0"), ["/dev/nvidia0"]);
        assert_eq!(expand("x[0-99999999]").len(), MOST_FILES);
    }

    #[test]
    fn only_lines_of_the_node_count() {
        let text = "AutoDetect=nvml\nNodeName=gpu-[01-02] Name=gpu File=/dev/nvidia[0-3] Cores=0-7\n\
             NodeName=gpu-03 AutoDetect=off Name=gpu File=/dev/nvidia0\nName=shard Count=8\n";
        let first = gres(text, Some("gpu-02"));
        assert_eq!((first.autodetect.as_deref(), first.gpus.len()), (Some("nvml"), 4));
        assert_eq!(first.gpus[3].cores, Some("0-7".parse().unwrap()));
        let third = gres(text, Some("gpu-03"));
        assert_eq!((third.autodetect, third.gpus.len()), (None, 1));
        let nobody = gres(text, None);
        assert!(nobody.passed_over && nobody.gpus.is_empty());
        assert!(!gres(text, Some("cpu")).passed_over);
    }

    #[test]
    fn links_counts_and_several_files_are_read() {
        let text = "Name=gpu File=/dev/nvidia0 Links=-1,4,0 CPUs=0,2-3\nName=gpu Count=2\n\
             Name=gpu MultipleFiles=/dev/nvidia1,/dev/nvidia-caps/nvidia-cap[21-22]\n";
        let found = gres(text, None);
        assert_eq!(found.gpus[0].links.as_ref().unwrap().counts, Some(vec![-1, 4, 0]));
        for wrong in ["0,-1,,0", "0,x", "0,0", "-1,-1", "-1,-5", ""] {
            assert_eq!(links(wrong).counts, None, "{wrong}");
        }
        assert_eq!(found.gpus[0].cores.as_ref().unwrap().to_string(), "0,2-3");
        assert_eq!(minors(&found), [Some(0), None, None, Some(1)]);
        assert_eq!(found.gpus[3].files.len(), 3);
    }
}
