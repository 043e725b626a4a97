//! Each parser against texts that are nearly right and texts that are anything: it
//! neither panics nor takes long nor fills the memory, and what it accepts is within its
//! limits. Who controls which text is in docs/security.md.
#![allow(clippy::unwrap_used, reason = "a test helper that fails fails its test")]

mod mutation_support;

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::sync::Once;
use std::time::{Duration, Instant};

use gpubind::read_any;
use gpubind::slurm::{PlugstackFile, SlurmConf, gres_minors, read_gres, release};
use gpubind_core::SlurmRelease;
use gpubind_core::node::snapshot::{Fingerprint, Snapshot};
use gpubind_core::node::{IdSet, Node, NumaNode, PciAddress, Roots};
use gpubind_core::plan::{Shape, plan};
use gpubind_core::request::{Binding, Command, Request, read_command_line, read_script};
use gpubind_core::site::{JobInfo, Origin, PlugstackArgs, SiteFile};
use gpubind_core::step::{Ranks, names, rank_info, step_gpu_count, task_cpus};
use gpubind_machine::Machine;
use mutation_support::{any_text, mutated};
use proptest::prelude::*;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// No text of a few thousand characters may take longer, on a busy machine.
const LONG: Duration = Duration::from_secs(5);
/// Nor may it take more memory, with all that the test itself needs.
const MEMORY: u64 = 1 << 30;

fn config() -> ProptestConfig {
    static LIMIT: Once = Once::new();
    LIMIT.call_once(|| {
        let maximum = getrlimit(Resource::Data).maximum;
        setrlimit(Resource::Data, Rlimit { current: Some(MEMORY), maximum }).unwrap();
    });
    ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases()) }
}

/// 256, or what PROPTEST_CASES says: a longer run is a variable away.
fn cases() -> u32 {
    ProptestConfig::default().cases
}

fn soon<T>(work: impl FnOnce() -> T) -> T {
    let begin = Instant::now();
    let done = work();
    assert!(begin.elapsed() < LONG, "{:?}", begin.elapsed());
    done
}

fn either(good: &[&str], words: &'static [&'static str]) -> impl Strategy<Value = String> + use<> {
    let good = good.iter().map(|text| (*text).to_owned()).collect();
    prop_oneof![3 => mutated(good, words), 1 => any_text(words)]
}

fn machine(name: &str) -> String {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/machines");
    fs::read_to_string(format!("{folder}/{name}.toml")).unwrap()
}

/// Whatever is accepted as a machine can be planned for.
fn plans(node: &Node) {
    let devices = node.devices();
    let tasks = vec![IdSet::default(); 3];
    let _ = plan(node, &devices, &tasks, Shape::Single);
}

const MATRIX: &str = "\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \tNV12\tPXB\t0-15\t0\t\tN/A\nGPU1\tNV12\t X \tPXB\t16-31\t1\t\tN/A\nNIC0\tPXB\tPXB\t X \n\nNIC Legend:\n\n  NIC0: mlx5_4\n";

fn snapshots() -> Vec<String> {
    let snapshot = |name| {
        let node = Machine::parse(&machine(name)).unwrap().to_node();
        let now = std::time::SystemTime::now();
        Snapshot::new(node, Fingerprint::take(&Roots::new("/nonexistent")), now).to_json()
    };
    vec![snapshot("two-cpu"), snapshot("a100-mig-mixed"), snapshot("gh200-4")]
}

const JSON: &[&str] = &[
    "null",
    "true",
    "{}",
    "[]",
    "\"known\":",
    "\"unsupported\"",
    "\"failed\":",
    "\"NV12\"",
    "\"SYS\"",
    "\"X\"",
    "\"0-15\"",
    "\"index\":",
    "\"schema\":1,",
    "\"gpus\":",
    "\"links\":",
];
const TOML: &[&str] = &[
    "[faults]\n",
    "[[gpu]]\n",
    "[gpus]\n",
    "numa = ",
    "pci = ",
    "cpus = ",
    "minor = ",
    "mig = ",
    "nvlink = ",
    "gpu = [",
    "{ id = 0 }",
    "\"0-7\"",
    "true",
    "[partition.a]\n",
    "mode = ",
    "'''",
];
const LISTS: &[&str] = &[
    "0-3",
    "0,1",
    "mask_cpu:",
    "map_cpu:",
    "map_ldom:",
    "quiet,",
    "0x1",
    "f",
    "GPU-",
    "MIG-",
    "gpu[01-16]",
    "n[1-5/0]",
    "n[0-4294967295]",
    "[1-3]n[2-4]",
    "@group",
    "a!b",
    "a&b",
    "4(x2)",
    "(x4294967295)",
];
const CONF: &[&str] = &[
    "NodeName=",
    "NodeName=n[1-5/0]\n",
    "NodeName=n[0-4294967295]\n",
    "NodeHostname=",
    "Gres=",
    "gpu:4",
    "gpu:a:2(S:0-1)",
    "Name=gpu",
    "File=/dev/nvidia[0-3]",
    "MultipleFiles=",
    "Links=",
    "Cores=",
    "Count=",
    "4G",
    "AutoDetect=nvml",
    "include x.conf\n",
    "include *\n",
    "optional ",
    "required ",
    "spank_gpubind.so",
    "DEFAULT",
    "#",
    "\\\n",
    "/dev/nvidia[0-99999999]",
];

proptest! {
    #![proptest_config(config())]

    #[test]
    fn pasted_text(text in either(&[MATRIX], &["GPU0", "X", "NV4", "SYS", "|", "\t", "  ", "N/A", "0-3"])) {
        if let Ok((node, _)) = soon(|| read_any(&text)) {
            plans(&node);
        }
    }

    #[test]
    fn a_snapshot(text in prop_oneof![3 => mutated(snapshots(), JSON), 1 => any_text(JSON)]) {
        if let Ok(snapshot) = soon(|| Snapshot::parse(text.as_bytes())) {
            plans(&snapshot.node);
            prop_assert_eq!(Snapshot::parse(snapshot.to_json().as_bytes()).unwrap(), snapshot);
        }
    }

    #[test]
    fn a_machine(text in either(&[&machine("two-cpu"), &machine("a100-mig-mixed"), &machine("dgx1-v100")], TOML)) {
        if let Ok(machine) = soon(|| Machine::parse(&text)) {
            plans(&soon(|| machine.to_node()));
        }
    }

    #[test]
    fn a_site_file(text in either(&[SITE], TOML)) {
        if let Ok(file) = soon(|| SiteFile::parse(&text, Path::new("/etc/gpubind.toml"))) {
            let job = JobInfo::read(&|_| Some("a".to_owned()));
            let _ = PlugstackArgs::default().site(Some(&file), &job);
        }
    }

    #[test]
    fn a_request(text in either(&["single,ids=uuid,share", "ordered,local-rank=keep,rank-env=off,strict", "auto"], &["single", "=", ",", "off", "uuid"])) {
        if let Ok(request) = soon(|| text.parse::<Request>()) {
            prop_assert_eq!(request.to_string().parse::<Request>().unwrap(), request);
        }
        let _ = soon(|| Binding::from_gpu_bind(&text));
        let _ = soon(|| Binding::from_tres_bind(&text));
    }

    #[test]
    fn a_command_line(
        words in proptest::collection::vec(argument(), 0..12),
        command in prop_oneof![Just(Command::Srun), Just(Command::Sbatch), Just(Command::Salloc)],
        programs in any::<bool>(),
        (year, month) in prop_oneof![Just((22, 5)), Just((24, 11)), Just((26, 5))],
    ) {
        let argv: Vec<OsString> = [OsString::from("srun")].into_iter().chain(words).collect();
        if let Ok(line) = soon(|| read_command_line(command, SlurmRelease::new(year, month), &argv, &|_, _| programs)) {
            for (position, _) in line.replacements {
                prop_assert!(position > 0 && position < argv.len());
            }
        }
    }

    #[test]
    fn a_batch_script(text in either(&[SCRIPT], SCRIPT_WORDS)) {
        for (year, month) in [(22, 5), (26, 5)] {
            let _ = soon(|| read_script(SlurmRelease::new(year, month), &text));
        }
    }

    #[test]
    fn plugstack_arguments(words in proptest::collection::vec(either(&["mode=single", "probe-timeout=10", "nvml=/x", "exclude=0000:01:00.0"], LISTS), 0..6)) {
        let words = words.iter().map(String::as_str);
        let (args, _) = soon(|| PlugstackArgs::read(words, &Origin::Plugstack(None)));
        let _ = args.site(None, &JobInfo::default());
    }

    #[test]
    fn cpu_lists_and_masks(text in either(&["0-3,8", "0x0003,0x000C", "1,0*3", "0-65535"], LISTS), kind in select_kind(), tasks in 0usize..20) {
        if let Ok(set) = soon(|| text.parse::<IdSet>()) {
            prop_assert_eq!(set.to_string().parse::<IdSet>().unwrap(), set);
        }
        let _ = soon(|| IdSet::from_mask(&text));
        let numa = [NumaNode { id: 0, cpus: "0-3".parse().unwrap(), distance: vec![] }];
        if let Ok(sets) = soon(|| task_cpus(kind, &text, tasks, &numa)) {
            prop_assert_eq!(sets.len(), tasks);
        }
        let _ = soon(|| text.parse::<PciAddress>());
    }

    #[test]
    fn device_lists_and_node_lists(text in either(&["0,1,2,3", "GPU-00000000-0000-0000-0000-000000000000,1", "MIG-GPU-1/2/3", "gpu[07-09],login1", "4(x2),3"], LISTS)) {
        let _ = soon(|| names(&text).count());
        let _ = soon(|| Ranks::first_host(&text));
        let _ = soon(|| release(&text));
    }

    #[test]
    fn rank_variables(values in proptest::collection::vec(either(&["0", "7", "4(x2),3", "RANK,LOCAL_RANK", "done"], LISTS), 1..8)) {
        // Each variable has one of these values, whichever it is.
        let env = |name: &str| values.get(name.len() % (values.len() + 1)).cloned();
        let found = soon(|| rank_info(1, &env));
        prop_assert!(found.local_size.is_none_or(|size| size > found.local_rank && size <= 4096));
        let _ = soon(|| step_gpu_count(&env));
    }
}

proptest! {
    // Each case writes a file.
    #![proptest_config(ProptestConfig { cases: cases().div_ceil(2), ..config() })]

    #[test]
    fn slurm_conf_and_gres_conf(slurm in either(&[SLURM_CONF], CONF), gres in either(&[GRES_CONF], CONF)) {
        let folder = tempfile::tempdir().unwrap();
        let (slurm_conf, gres_conf) = (folder.path().join("slurm.conf"), folder.path().join("gres.conf"));
        fs::write(&slurm_conf, &slurm).unwrap();
        fs::write(&gres_conf, &gres).unwrap();
        let conf = soon(|| SlurmConf::read(&slurm_conf)).unwrap();
        let _ = soon(|| conf.names_on("gpu-02"));
        let entry = soon(|| conf.node(None, "gpu-02"));
        let types = entry.as_ref().map(|entry| { let _ = entry.cores(); entry.gpu_types() }).unwrap_or_default();
        let _ = soon(|| SlurmConf::from_shown(&slurm));
        let node = Machine::parse(&machine("two-cpu")).unwrap().to_node();
        for name in [Some("gpu-02"), None] {
            let found = soon(|| read_gres(&gres_conf, name)).unwrap();
            let minors = soon(|| gres_minors(&found, &types, &node, Path::new("/dev")));
            prop_assert!(minors.is_none_or(|minors| minors.len() <= 4096));
        }
    }

    #[test]
    fn plugstack_conf(text in either(&[PLUGSTACK], CONF)) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("plugstack.conf");
        fs::write(&file, &text).unwrap();
        let found = soon(|| PlugstackFile::read(&file));
        prop_assert!(found.files.len() <= 256);
    }
}

const SCRIPT: &str = "#!/bin/bash\n#SBATCH --gpubind=auto -N2\n#SBATCH --gpu-bind=\"spank:single\" # x\n#SBATCH hetjob\n#SLURM --gpubind 'off'\nsrun ./app\n";
const SCRIPT_WORDS: &[&str] = &[
    "#SBATCH ",
    "#SBATCH hetjob\n",
    "--gpu-bind",
    "--gpubind=",
    "spank:",
    "\"",
    "'",
    "\\",
    "#!/bin/sh\n",
    "\n",
    " # ",
    "-n",
    "=",
];
const SITE: &str = "default = \"always\"\nexclude = [\"0000:01:00.0\", \"GPU-1\"]\nprobe-timeout = 20\nshare = \"on\"\n[partition.a]\nmode = \"single\"\n[constraint.b]\nids = \"uuid\"\n";
const SLURM_CONF: &str = "ClusterName=c\nTaskPlugin=task/affinity\nNodeName=DEFAULT Gres=gpu:4\nNodeName=gpu-[01-03] CoresPerSocket=8 Sockets=2 Gres=gpu:a:4(S:0-1),shard:8\nNodeName=x[0-1] NodeHostname=gpu-02,b\n";
const GRES_CONF: &str = "AutoDetect=off\nNodeName=gpu-[01-03] Name=gpu Type=a File=/dev/nvidia[0-3] Cores=0-7 Links=-1,4,4,4\nName=gpu MultipleFiles=/dev/nvidia4,/dev/nvidia-caps/nvidia-cap[21-22] Count=1\n";
const PLUGSTACK: &str = "# spank\nrequired other.so\noptional spank_gpubind.so program=/usr/bin/gpubind \\\ninclude plugstack.conf\ninclude *.conf\n";

fn select_kind() -> impl Strategy<Value = &'static str> {
    prop_oneof![
        Just("mask_cpu:"),
        Just("map_cpu:"),
        Just("map_ldom:"),
        Just("mask_ldom:"),
        Just("none"),
        Just("")
    ]
}

/// A word of a command line; not all are text.
fn argument() -> impl Strategy<Value = OsString> {
    let words: &'static [&'static str] = &[
        "--gpu-bind=spank",
        "--gpu-bind",
        "spank:single",
        "--gpubind=off",
        "--gpubind",
        ":",
        "--",
        "-n8",
        "-n",
        "8",
        "--gpu-b=spank",
        "verbose,spank",
        "closest",
        "--tres-bind=gres/gpu:none",
        "--unknown",
        "-",
        "--=",
        "-o",
        "./app",
        "none,spank:x",
    ];
    prop_oneof![
        6 => proptest::sample::select(words).prop_map(OsString::from),
        2 => any_text(words).prop_map(OsString::from),
        1 => proptest::collection::vec(any::<u8>(), 0..12).prop_map(OsString::from_vec),
    ]
}
