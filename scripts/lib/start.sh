# shellcheck shell=bash
# shellcheck disable=SC2154 # variables are shared with the other parts
# cluster start: from options to idle nodes. Sourced, never run.

default_machine=dgx-a100

cluster_start() {
    parse_start "$@"
    [ "$build" = no ] || build_stage
    # Everything from here on needs root, and cargo is better run without.
    [ "$EUID" -eq 0 ] || { as_root "$here/cluster" start "$@" --no-build; return; }

    install_release "$release" "${packages[@]}"
    dir=$clusters/$name
    mkdir -p "$clusters" "$dir"
    mkdir "$dir/run" 2>/dev/null || die "cluster '$name' exists: stop it first, or choose another --name"
    started=no
    trap 'start_ends' EXIT
    trap 'exit 130' INT TERM
    make_folders
    name_nodes
    cgroup=$(cgroup_kind)
    usable_cpus=$(count_usable_cpus)
    check_machine
    lay_out_machine
    describe_plugin
    take_ports
    write_config
    start_all
    exec 9<&-
    started=yes
    say "cluster $name: nodes $(paste -sd, "$dir/run/nodes") with ${#gpu_files[@]} GPUs each are idle; try: scripts/cluster exec $name -- srun -N$nodes hostname"
}

parse_start() {
    name=gpubind nodes=2 machine=auto constrain=no plugin=yes plugin_file='' plugin_args='' pyxis='' site_config='' release=host build=yes
    gres='' gres_lines='' fake_gpus='' packages=()
    while [ $# -gt 0 ]; do
        case $1 in
        --name | --nodes | --machine | --plugin | --plugstack | --pyxis | --site-config | --slurm | --with | --gres | --gres-conf | --fake-gpus)
            [ $# -ge 2 ] || die "$1 needs a value"
            ;;
        esac
        case $1 in
        --name) name=$2 && shift ;;
        --nodes) nodes=$2 && shift ;;
        --machine) machine=$2 && shift ;;
        --plugin) plugin_file=$2 && shift ;;
        --plugstack) plugin_args=$2 && shift ;;
        --pyxis) pyxis=$2 && shift ;;
        --site-config) site_config=$2 && shift ;;
        --slurm) release=$2 && shift ;;
        --with) IFS=, read -r -a packages <<<"$2" && shift ;;
        --gres) gres=$2 && shift ;;
        --gres-conf) gres_lines=$2 && shift ;;
        --fake-gpus) fake_gpus=$2 && shift ;;
        --constrain-devices) constrain=yes ;;
        --no-plugin) plugin=no ;;
        --no-build) build=no ;;
        *) die "unknown option '$1': see --help" ;;
        esac
        shift
    done
    check_name "$name"
    check_release "$release"
    [[ $pyxis =~ ^(|first|last)$ ]] || die "bad --pyxis '$pyxis': use first or last"
    [[ $nodes =~ ^([1-9]|1[0-6])$ ]] || die "bad number of nodes '$nodes': use 1 to 16"
    if [ "$machine" = auto ]; then
        machine=$default_machine
        if has_real_gpus; then machine=real; fi
    fi
    case $machine in
    none | real) fixture='' ;;
    */*) fixture=$machine ;;
    *) fixture=$root/tests/machines/$machine.toml ;;
    esac
    if [ -n "$fixture" ] && [ ! -f "$fixture" ]; then
        die "no machine '$machine': use a name from tests/machines, the path of a fixture, none or real"
    fi
}

has_real_gpus() {
    [ -c /dev/nvidia0 ] && ldconfig -p 2>/dev/null | grep -q 'libnvidia-ml\.so\.1'
}

# Whatever ends a start early, also Ctrl-C, leaves no cluster behind.
start_ends() {
    local status=$?
    trap '' INT TERM
    [ "$started" = yes ] || remove_cluster "$name" no
    exit "$status"
}

# Paths of Unix sockets may have 107 bytes and a checkout may lie deep, so
# there is a short way into the cluster's folder for munge's and slurmstepd's.
make_folders() {
    local i
    echo "$release" >"$dir/run/release"
    short=$(mktemp -d /tmp/gpubind.XXXXXX)
    echo "$short" >"$dir/run/short"
    chmod 755 "$short"
    ln -s "$dir" "$short/c"
    short=$short/c
    rm -rf "$dir/log"
    mkdir -p "$dir"/{etc,log,spool/ctld} "$dir"/root/{dev,sys,proc,run,nvml}
    for ((i = 0; i < nodes; i++)); do
        echo "$name-$i" >>"$dir/run/nodes"
        mkdir "$dir/spool/$name-$i"
    done
}

# Programs in the cluster can reach its nodes by name, as they can on a real
# one: all of them are this machine.
name_nodes() {
    [ "$release" != host ] || return 0
    hosts_file=$dir/etc/hosts
    { cat "$roots/$release/etc/hosts" && sed 's/^/127.0.0.1 /' "$dir/run/nodes"; } >"$hosts_file"
}

# Slurm's cgroups are named after the node, not after the cluster.
check_machine() {
    local node
    while read -r node; do
        [ -z "$(node_cgroups "$node")" ] ||
            die "cgroups of a node '$node' exist already: is a cluster '$name' of another checkout running?"
    done <"$dir/run/nodes"
    if [ "$cgroup" = none ]; then
        [ "$constrain" = no ] ||
            die "--constrain-devices needs writable cgroups, which this machine does not have"
        say "no writable cgroups here: processes are tracked by their parents instead"
    fi
    [ "$usable_cpus" -gt 0 ] || say "CPU 0 may not be used here: tasks are not bound to CPUs"
}

# Sets gpu_files, in PCI order.
lay_out_machine() {
    local index minor rest
    gpu_files=()
    case $machine in
    none) ;;
    real)
        for rest in /proc/driver/nvidia/gpus/*/information; do
            minor=$(sed -n 's/^Device Minor:[[:space:]]*//p' "$rest")
            gpu_files+=("/dev/nvidia$minor")
        done
        ;;
    *)
        "$stage/fake-machine" --library "$stage/libnvidia-ml.so.1" "$fixture" "$dir/root" >"$dir/root/gpus" ||
            die "cannot lay out $fixture"
        while read -r index minor rest; do
            [[ $index =~ ^[0-9]+$ ]] || continue
            make_device "nvidia$minor" "$minor"
            gpu_files+=("$dir/root/dev/nvidia$minor")
        done <"$dir/root/gpus"
        make_device nvidiactl 255
        ;;
    esac
}

# make_device NAME MINOR: with NVIDIA's major number. No driver needs to be
# there: Slurm and the plugin only ask who may open it.
make_device() {
    mknod -m 666 "$dir/root/dev/$1" c 195 "$2" && return
    [ "$constrain" = no ] || die "--constrain-devices needs device nodes, and mknod is not allowed here"
    say "mknod is not allowed here: plain file instead of $1"
    : >"$dir/root/dev/$1"
}

# Sets plugstack, the line that loads the plugin. The site file is always one of the
# cluster's own: a machine's /etc/gpubind.toml must not reach into tests.
describe_plugin() {
    plugstack=''
    [ "$plugin" = yes ] || return 0
    if [ -n "$plugin_file" ]; then
        plugstack="optional $plugin_file${plugin_args:+ $plugin_args}"
        return
    fi
    plugstack="optional $stage/spank_gpubind.so program=$stage/gpubind config=$dir/etc/gpubind.toml"
    plugstack+=" worker=$stage/libgpubind_worker.so"
    case $machine in
    none | real) ;;
    *) plugstack+=" fsroot=$dir/root nvml=$dir/root/nvml/libnvidia-ml.so.1" ;;
    esac
    plugstack+="${plugin_args:+ $plugin_args}"
    local other="required ${GPUBIND_TEST_BESIDE:-$stage/spank_pyxis.so}"
    case $pyxis in
    first) plugstack=$other$'\n'$plugstack ;;
    last) plugstack+=$'\n'$other ;;
    esac
}

# Sets ports: slurmctld's, then one per node, below the kernel's own range. The
# lock, on a folder so that it leaves no file, is held until the daemons listen.
take_ports() {
    local port=$((20000 + RANDOM % 10000))
    ports=()
    exec 9</run
    flock 9
    while [ ${#ports[@]} -le "$nodes" ]; do
        port_is_used "$port" || ports+=("$port")
        port=$((port + 1))
    done
}

port_is_used() { has_socket "$1" ''; }

# Not the connections that a daemon before this one has closed: TCP_LISTEN is 0A
# (include/net/tcp_states.h).
port_listens() { has_socket "$1" '[0-9A-F:]* 0A'; }

# has_socket PORT REST: a line of /proc/net/tcp has this local port, and REST behind it.
has_socket() {
    grep -qi "^ *[0-9]*: [0-9A-F]*:$(printf %04X "$1") $2" /proc/net/tcp /proc/net/tcp6 2>/dev/null
}

start_all() {
    local node
    SECONDS=0
    echo "$hwloc" >"$dir/run/hwloc"
    run_daemon munged munged --foreground --force --num-threads=2 \
        --key-file="$dir/etc/munge.key" --socket="$short/run/munge.socket" \
        --pid-file="$dir/run/munged.munge" --seed-file="$dir/run/munged.seed"
    await munged test -S "$dir/run/munge.socket"
    run_daemon slurmctld slurmctld -D -f "$dir/etc/slurm.conf"
    while read -r node; do
        start_slurmd "$node"
    done <"$dir/run/nodes"
    await slurmctld port_listens "${ports[0]}"
    while read -r node; do
        await "$node" node_is_idle "$node"
    done <"$dir/run/nodes"
}

start_slurmd() {
    local find_cpus=() hwloc
    hwloc=$(<"$dir/run/hwloc")
    [ -z "$hwloc" ] || find_cpus=(env "HWLOC_SYNTHETIC=$hwloc")
    run_daemon "$1" "${find_cpus[@]}" slurmd -D -N "$1" -f "$dir/etc/slurm.conf"
}

# cluster_restart NAME [SIGNAL]
cluster_restart() {
    name=${1-} dir=$clusters/${1-}
    need_cluster "$name"
    [ "$EUID" -eq 0 ] || { as_root "$here/cluster" restart "$@"; return; }
    release=$(<"$dir/run/release")
    hosts_file=''
    [ ! -e "$dir/etc/hosts" ] || hosts_file=$dir/etc/hosts
    local node pid
    SECONDS=0
    while read -r node; do
        if pid=$(daemon_pid "$dir/run/$node.pid"); then kill -s "${2-TERM}" "$pid"; fi
        stop_daemons "$dir/run/$node.pid"
        start_slurmd "$node"
        await "$node" port_listens "$(slurmd_port "$node")"
        await "$node" node_is_in_service "$node"
    done <"$dir/run/nodes"
}

slurmd_port() { sed -n "s/^NodeName=$1 .* Port=\([0-9]*\).*/\1/p" "$dir/etc/slurm.conf"; }

# Also one that runs steps.
node_is_in_service() {
    [[ "$(cluster_exec "$name" -- sinfo -h -n "$1" -o %T 2>/dev/null)" =~ ^(idle|mixed|allocated|completing)$ ]]
}

run_daemon() {
    local daemon=$1
    shift
    start_daemon "$dir/run/$daemon.pid" "$dir/log/$daemon.out" "$release" "$@"
}

node_is_idle() {
    [ "$(cluster_exec "$name" -- sinfo -h -n "$1" -o %T 2>/dev/null)" = idle ]
}

# await DAEMON CONDITION...: until it is true. A daemon that ends meanwhile, or 30
# seconds without success, are the end.
await() {
    local daemon=$1 pidfile
    shift
    while ! ("$@"); do
        for pidfile in "$dir"/run/*.pid; do
            daemon_pid "$pidfile" >/dev/null || blame "$(basename "$pidfile" .pid)" "has ended"
        done
        [ "$SECONDS" -lt 30 ] || blame "$daemon" "is not ready after 30 seconds"
        sleep 0.1
    done
}

blame() {
    say "cluster $name: $1 $2; the end of its log:"
    tail -n 20 "$dir/log/$1.out" | sed 's/^/  /' >&2
    exit 1
}
