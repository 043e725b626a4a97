//! Reading `nvidia-smi topo -m` text: whatever people do to it on the way, it is
//! read right or refused with line and cell.
#![allow(clippy::unwrap_used)]

mod topo_support;

use gpubind_core::node::{Link, Node};
use gpubind_topo_text::{TextWarning, TopoTextError, parse};
use proptest::prelude::*;
use topo_support::{Style, style, table};

const FOUR: &str = "\tGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID
GPU0\t X \tNV12\tSYS\tSYS\tPXB\t0-15\t0\t\tN/A
GPU1\tNV12\t X \tSYS\tSYS\tPXB\t0-15\t0\t\tN/A
GPU2\tSYS\tSYS\t X \tNV12\tSYS\t16-31\t1\t\tN/A
GPU3\tSYS\tSYS\tNV12\t X \tSYS\t16-31\t1\t\tN/A
NIC0\tPXB\tPXB\tSYS\tSYS\t X \t\t\t

Legend:

  X    = Self
  NV#  = Connection traversing a bonded set of # NVLinks

NIC Legend:

  NIC0: mlx5_4
";

fn error(text: &str) -> String {
    match parse(text) {
        Ok((node, _)) => panic!("read as {node:?}\n{text}"),
        Err(error) => error.to_string(),
    }
}

fn warnings(text: &str) -> Vec<String> {
    let (_, warnings) = parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    warnings.iter().map(ToString::to_string).collect()
}

fn cpus(node: &Node) -> Vec<String> {
    let text =
        |gpu: &gpubind_core::node::Gpu| gpu.cpus.known().map_or("?".into(), |c| c.to_string());
    node.gpus.iter().map(text).collect()
}

#[test]
fn a_clean_paste_is_read_without_a_warning() {
    let (node, warnings) = parse(FOUR).unwrap();
    assert_eq!(warnings, []);
    assert_eq!(node.link(0, 1), Link::NvLink(12));
    assert_eq!(cpus(&node), ["0-15", "0-15", "16-31", "16-31"]);
    assert_eq!(node.nics[0].name, "mlx5_4");
    assert_eq!(node.nics[0].links, [Link::Pxb, Link::Pxb, Link::Sys, Link::Sys]);
    let numa: Vec<String> = node.numa.iter().map(|n| format!("{}:{}", n.id, n.cpus)).collect();
    assert_eq!(numa, ["0:0-15", "1:16-31"]);
    assert_eq!(node.check(), Ok(()));
}

#[test]
fn errors_name_line_and_cell() {
    let hurt = |from: &str, to: &str| {
        assert!(FOUR.contains(from), "{from}");
        error(&FOUR.replacen(from, to, 1))
    };
    assert_eq!(error("hello"), TopoTextError::NoMatrix.to_string());
    assert_eq!(
        hurt("X \tSYS\tSYS\tPXB", "X \tSYS\tFOO\tPXB"),
        "line 3, row GPU1, column GPU3: `FOO` is not one of X, NV#, PIX, PXB, PHB, NODE, SYS"
    );
    assert_eq!(
        hurt("X \tSYS\tSYS\tPXB", "X \tOK\tSYS\tPXB"),
        "line 3, row GPU1, column GPU2: `OK` (as `nvidia-smi topo -p2p` fingerprints it) is not one of \
         X, NV#, PIX, PXB, PHB, NODE, SYS"
    );
    assert_eq!(
        hurt("X \tSYS\tSYS\tPXB", "X \tSYS\tPXB"),
        "line 3, row GPU1: 4 of 5 cells, nothing for column NIC0"
    );
    assert_eq!(
        hurt("X \tSYS\tSYS\tPXB", "X \tSYS\t\tPXB"),
        "line 3, row GPU1: 3 of 5 cells, nothing for column GPU3"
    );
    assert_eq!(
        hurt("X \tSYS\tSYS\tPXB", "X \tSYS\tSYS\tSYS\tPXB"),
        "line 3, row GPU1: `PXB` is a cell too many for 5 columns"
    );
    assert_eq!(
        hurt("GPU1\tNV12\t X ", "GPU1\tNV12\tPIX"),
        "line 3, row GPU1, column GPU1: `PIX` where X must stand"
    );
    assert_eq!(
        hurt("GPU1\tNV12", "GPU1\t X "),
        "line 3, row GPU1, column GPU0: `X` where a link must stand"
    );
    assert_eq!(
        hurt("GPU1\tNV12", "GPU4\tNV12"),
        "line 3, row GPU4: the first line names no column GPU4"
    );
    assert_eq!(
        hurt("GPU1\tNV12", "GPU0\tNV12"),
        "line 3, row GPU0, column GPU0: `NV12` where X must stand"
    );
    assert_eq!(
        hurt("SYS\tPXB\t0-15", "SYS\tNV120-15"),
        "line 2, row GPU0: `NV120-15` may be parted in several ways; put a space between its cells"
    );
    let short: String = FOUR.lines().take(4).map(|line| format!("{line}\n")).collect();
    assert_eq!(error(&short), "line 1 names column GPU3, but the text has no row GPU3");
    let two =
        FOUR.replace("NIC0\tPXB\tPXB", "GPU0\t X \tNV12\tSYS\tSYS\tPIX\t0-15\t0\nNIC0\tPXB\tPXB");
    assert_eq!(error(&two), "line 6, row GPU0: line 2 has another row GPU0");
    let lost = FOUR.replace("GPU2\tSYS", "SYS");
    assert!(error(&lost).starts_with("line 4: `SYS` stands in no row"), "{}", error(&lost));
    let no_rows = FOUR.lines().next().unwrap();
    assert_eq!(error(no_rows), "line 1 names the columns, but no row like `GPU0 X …` follows it");
}

#[test]
fn doubtful_affinity_is_left_out_with_a_warning() {
    let no_list = FOUR.replacen("\t0-15\t0", "\t0-x\t0", 1);
    let (node, _) = parse(&no_list).unwrap();
    assert_eq!(cpus(&node), ["?", "0-15", "16-31", "16-31"]);
    assert_eq!(
        warnings(&no_list),
        [
            "line 2, row GPU0: `x` is not a CPU number or a range like 0-15; its CPU and NUMA cells are left out"
        ]
    );
    // All tabs gone: the last link and the CPU list can be told apart, the CPU
    // list and the NUMA node cannot.
    let glued = FOUR.replacen("SYS\tPXB\t0-15\t0\t\tN/A", "SYSPXB0-150N/A", 1);
    let (node, warnings) = parse(&glued).unwrap();
    assert_eq!(node.links, parse(FOUR).unwrap().0.links);
    assert_eq!(cpus(&node)[0], "?");
    assert!(
        matches!(&warnings[..], [TextWarning::AffinityLeftOut { line: 2, .. }]),
        "{warnings:?}"
    );
}

#[test]
fn a_row_that_shows_not_which_cell_is_empty_is_left_out() {
    let lines = FOUR.lines().take(5).collect::<Vec<_>>().join("\n").replace('\t', "  ");
    let hurt = lines.replacen("SYS  PXB  0-15  0    N/A", "SYS  PXB  0    N/A", 1);
    let (node, warnings) = parse(&hurt).unwrap();
    assert!(node.gpus[0].cpus.known().is_none() && node.gpus[0].numa.known().is_none());
    assert!(warnings.iter().any(|w| matches!(w, TextWarning::AffinityLeftOut { line: 2, .. })));
}

#[test]
fn contradictions_in_the_text_are_told() {
    let clipped = FOUR.replace("16-31", "0-15");
    assert_eq!(
        warnings(&clipped),
        [
            "GPU0 and GPU2 print NUMA nodes 0 and 1 but the same CPUs 0-15: clipped by a job's cpuset?"
        ]
    );
    let (node, _) = parse(&clipped).unwrap();
    assert_eq!(node.numa, [], "CPUs of two nodes at once are no node's CPUs");
    let one_way = FOUR.replacen("GPU0\t X \tNV12", "GPU0\t X \tNV1", 1);
    assert_eq!(
        warnings(&one_way),
        ["GPU0 to GPU1 is NV1, but GPU1 to GPU0 is NV12; the worse one is used"]
    );
    assert_eq!(parse(&one_way).unwrap().0.link(0, 1), Link::NvLink(1));
    let other_cpus = FOUR.replacen("0-15", "0-7", 1);
    assert_eq!(
        warnings(&other_cpus),
        ["GPU0 and GPU1 print the same NUMA node 0 but different CPUs"]
    );
}

#[test]
fn only_the_first_of_two_matrices_is_read() {
    let second = "\nnode2:\n\tGPU0\tGPU1\nGPU0\t X \tPIX\nGPU1\tPIX\t X \n";
    assert_eq!(
        warnings(&format!("{FOUR}{second}")),
        ["line 18 begins another matrix: only the first one was read"]
    );
}

#[test]
fn prose_around_the_table_does_no_harm() {
    let text = format!(
        "We have GPU0 and GPU1 with NVLink, X marks itself.\n$ nvidia-smi topo -m\n\n{FOUR}\n\
         So GPU3 PIX is not there, and GPU0-GPU1 is NV12.\nGPU0 is fine. 8 GPU1\n"
    );
    let (node, warnings) = parse(&text).unwrap();
    assert_eq!((node, warnings), parse(FOUR).unwrap());
}

/// Eight GPUs and an adapter, tabs made blanks, as a terminal shows them.
fn eight() -> (Vec<String>, Node) {
    let mut lines = vec![String::new()];
    let names: Vec<String> = (0..8).map(|gpu| format!("GPU{gpu}")).collect();
    let cells = |cells: &[String]| cells.iter().map(|cell| format!("{cell:<8}")).collect();
    let header: String = cells(&names);
    lines[0] = format!("        {header}CPU Affinity    NUMA Affinity   GPU NUMA ID");
    for (row, name) in names.iter().enumerate() {
        let links: Vec<String> =
            (0..8).map(|column| if row == column { " X" } else { "NV18" }.to_owned()).collect();
        let links: String = cells(&links);
        let (cpus, numa) = [("0-55,112-167", 0), ("56-111,168-223", 1)][row / 4];
        lines.push(format!("{name:<8}{links}{cpus:<16}{numa:<15} N/A"));
    }
    let (node, warnings) = parse(&lines.join("\n")).unwrap();
    assert_eq!(warnings, []);
    assert_eq!(cpus(&node)[3..5], ["0-55,112-167", "56-111,168-223"]);
    (lines, node)
}

#[test]
fn lines_that_a_terminal_wrapped_are_put_together() {
    let (lines, whole) = eight();
    // 80 columns part the CPU list and `CPU Affinity`, 71 and 75 an `NV18`.
    for width in [80, 100, 71, 75, 64] {
        let mut text = String::new();
        for line in &lines {
            for part in line.as_bytes().chunks(width) {
                text += std::str::from_utf8(part).unwrap();
                text.push('\n');
            }
        }
        let (node, warnings) = parse(&text).unwrap_or_else(|e| panic!("{width}: {e}\n{text}"));
        assert_eq!(node, whole, "{width}: {warnings:?}\n{text}");
    }
}

#[test]
fn a_line_of_numbers_below_a_row_is_not_taken_for_its_end_in_silence() {
    let lines: Vec<&str> = FOUR.lines().take(5).collect();
    for below in ["0", "7", "2-3"] {
        let text = format!("{}\n{below}\n", lines.join("\n").replace("\t\tN/A", ""));
        let text = text.replace("\tGPU NUMA ID", "");
        let text = text.replace("\tNIC0", "").replace("\tPXB\t", "\t").replace("SYS\t16", "16");
        let (node, warnings) = parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let last = &node.gpus[3];
        let right = cpus(&node)[3] == "16-31" && last.numa.known() == Some(&vec![1]);
        assert!(right || !warnings.is_empty(), "{below}: {last:?}\n{text}");
        assert_eq!(cpus(&node)[..3], ["0-15", "0-15", "16-31"]);
    }
}

#[test]
fn lines_that_an_editor_filled_are_put_together() {
    let (lines, whole) = eight();
    let words: Vec<&str> = lines.iter().flat_map(|line| line.split_whitespace()).collect();
    for width in [60, 72, 100] {
        let mut text = String::from("//");
        let mut length = 0;
        for word in &words {
            if length + word.len() > width {
                text += "\n//";
                length = 0;
            }
            text += &format!(" {word}");
            length += word.len() + 1;
        }
        let (node, warnings) = parse(&text).unwrap_or_else(|e| panic!("{width}: {e}\n{text}"));
        assert_eq!(node, whole, "{width}: {warnings:?}\n{text}");
    }
}

#[test]
fn a_column_order_of_its_own_is_put_right() {
    let text = "\tGPU2\tGPU0\nGPU2\tX\tNV4\t\nGPU0\tNV4\tX\n";
    let (node, _) = parse(text).unwrap();
    assert_eq!(node.gpus.iter().map(|gpu| gpu.index).collect::<Vec<_>>(), [0, 2]);
    assert!(node.gpus.is_sorted_by_key(|gpu| gpu.pci));
    assert_eq!(node.links[0], [Link::Same, Link::NvLink(4)]);
}

/// What happens to a text on its way, without a loss.
fn disguise() -> impl Strategy<Value = fn(&str) -> String> {
    fn plain(line: &str) -> String {
        line.to_owned()
    }
    fn comment(line: &str) -> String {
        format!("# {line}")
    }
    fn slashes(line: &str) -> String {
        format!("    // {line}")
    }
    fn mail(line: &str) -> String {
        format!(">> > {line}")
    }
    fn file(line: &str) -> String {
        format!("job.sh:12:# {line}")
    }
    fn constant(line: &str) -> String {
        format!("    \"{}\\n\"", line.replace('\t', "\\t"))
    }
    fn colours(line: &str) -> String {
        format!("\u{1b}[1;32m{line}\u{1b}[0m\r")
    }
    fn broken_colours(line: &str) -> String {
        line.replacen("GPU", "[4mGPU", 1) + "[0m"
    }
    fn indented(line: &str) -> String {
        format!("        {line}")
    }
    fn hard_blanks(line: &str) -> String {
        line.replace(' ', "\u{a0}")
    }
    fn blank_between(line: &str) -> String {
        format!("{line}\n\n")
    }
    prop_oneof![
        Just(plain as fn(&str) -> String),
        Just(comment as fn(&str) -> String),
        Just(slashes as fn(&str) -> String),
        Just(mail as fn(&str) -> String),
        Just(file as fn(&str) -> String),
        Just(constant as fn(&str) -> String),
        Just(colours as fn(&str) -> String),
        Just(broken_colours as fn(&str) -> String),
        Just(indented as fn(&str) -> String),
        Just(hard_blanks as fn(&str) -> String),
        Just(blank_between as fn(&str) -> String),
    ]
}

fn square(node: &Node) -> bool {
    let gpus = node.gpus.len();
    gpus > 0
        && node.links.len() == gpus
        && node.links.iter().all(|row| row.len() == gpus)
        && node.nics.iter().all(|nic| nic.links.len() == gpus)
        && node.check().is_ok()
}

/// 64 cases each; PROPTEST_CASES asks for more.
fn config() -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    ProptestConfig {
        cases: cases.unwrap_or(64),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn every_style_and_disguise_is_read_right(table in table(), style in style(), disguise in disguise()) {
        let text = table.lines(style).iter().map(|line| disguise(line) + "\n").collect::<String>();
        let (node, warnings) = parse(&text).map_err(|e| TestCaseError::fail(format!("{e}\n{text}")))?;
        prop_assert!(table.has_links_of(&node), "{text}\n{node:#?}");
        for gpu in 0..table.gpus {
            prop_assert!(table.has_affinity_of(&node, gpu), "GPU{gpu}\n{text}\n{warnings:?}");
        }
        prop_assert!(square(&node));
    }

    #[test]
    fn a_wrapped_text_is_read_right_or_refused(table in table(), style in style(), width in 20usize..120) {
        let mut text = String::new();
        for line in table.lines(style) {
            let letters: Vec<char> = line.chars().collect();
            for part in letters.chunks(width) {
                text.extend(part);
                text.push('\n');
            }
        }
        if let Ok((node, warnings)) = parse(&text) {
            prop_assert!(table.has_links_of(&node) || !warnings.is_empty(), "{text}\n{node:#?}");
            for gpu in 0..table.gpus {
                let right = table.has_affinity_of(&node, gpu);
                prop_assert!(right || !warnings.is_empty(), "GPU{gpu}\n{text}\n{node:#?}");
            }
            prop_assert!(square(&node));
        }
    }

    #[test]
    fn a_text_that_lost_its_tabs_is_read_right_or_refused(table in table()) {
        let text = table.lines(Style::Tabs).join("\n").replace('\t', "");
        if let Ok((node, warnings)) = parse(&text) {
            prop_assert!(table.has_links_of(&node), "{text}\n{node:#?}");
            for gpu in 0..table.gpus {
                let right = table.has_affinity_of(&node, gpu);
                prop_assert!(right || !warnings.is_empty(), "GPU{gpu}\n{text}\n{node:#?}");
            }
        }
    }

    #[test]
    fn a_cut_text_is_never_read_wrong(table in table(), style in style(), cut in any::<prop::sample::Index>()) {
        let whole = table.lines(style).join("\n");
        let ends: Vec<usize> = whole.char_indices().map(|(at, _)| at).collect();
        let text = &whole[..*cut.get(&ends)];
        if let Ok((node, warnings)) = parse(text) {
            prop_assert!(square(&node));
            let gpus = node.gpus.len();
            let same = node.links.iter().zip(&table.links).all(|(row, cells)| {
                row.iter().zip(cells).all(|(link, cell)| Ok(*link) == cell.parse())
            });
            prop_assert!(same && (gpus == table.gpus || !warnings.is_empty()), "{text}\n{node:#?}");
        }
    }

    #[test]
    fn any_text_is_read_or_refused_without_a_panic(text in ".{0,400}") {
        if let Ok((node, _)) = parse(&text) {
            prop_assert!(square(&node));
        }
    }

    #[test]
    fn any_heap_of_words_is_read_or_refused_without_a_panic(
        words in prop::collection::vec(
            prop_oneof![
                "GPU[0-3]", "NIC[0-2]:?", "mlx5_[0-2]", "X", "NV(1|12|180)?", "PIX|PHB|NODE|SYS|SYSX",
                "[0-9]{1,3}(-[0-9]{1,6})?,?", "CPU Affinity", "NUMA( Affinity)?", "GPU NUMA ID", "N/A",
                "\\|", "\n", "\n", "\t", " ", " {30}", "\"", "# ", "\\\\t", "\u{1b}\\[", "é…", "Legend:",
            ],
            0..120,
        ),
        glue in prop_oneof![Just(" "), Just("\t"), Just("")],
    ) {
        let text = words.join(glue);
        if let Ok((node, _)) = parse(&text) {
            prop_assert!(square(&node), "{text}\n{node:#?}");
        }
    }
}
