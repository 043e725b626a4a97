# shellcheck shell=bash
# shellcheck disable=SC2154 # variables are shared with the other parts
# A whole emulated GPU node of a release's system, for scripts/walkthrough:
# stock paths, a private copy of every file, no network but its own. Sourced, never
# run.
#
# All of it lives in namespaces of the calling process (enter_namespaces) and in a
# tmpfs there: when that process ends, however, its daemons are killed, its mounts
# are gone, and this machine has not changed.

# Where everything is mounted, in the namespace only; any folder that is there.
work=/mnt
node=$work/node
node_name=gpu1

# enter_namespaces PROGRAM ARGS...: becomes that program.
enter_namespaces() {
    exec unshare --mount --pid --net --uts --ipc --fork --kill-child --mount-proc -- "$@"
}

# Once, in the namespaces.
prepare_namespaces() {
    hostname "$node_name"
    ip link set lo up
    # Slurm looks for an address beyond 127 (AI_ADDRCONFIG): one for documentation.
    ip address add 192.0.2.1/32 dev lo
    mount -t tmpfs walkthrough "$work"
    layers=''
    mkdir "$node"
    "$stage/fake-machine" --library "$stage/libnvidia-ml.so.1" \
        "$root/tests/machines/two-cpu.toml" "$work/machine" >/dev/null
}

# mount_node RELEASE: that release's system, and over it what earlier ones of this
# walk have written.
mount_node() {
    local base=/ layer=$work/layer.$1 tree
    [ "$1" = host ] || base=$roots/$1
    mkdir "$layer" "$layer.tmp"
    mount -t overlay node -o "lowerdir=${layers:+$layers:}$base,upperdir=$layer,workdir=$layer.tmp" "$node"
    layers=$layer${layers:+:$layers}
    mount --rbind /proc "$node/proc"
    mount --rbind /sys "$node/sys"
    mount -t tmpfs run "$node/run"
    mount -t tmpfs tmp "$node/tmp"
    chmod 1777 "$node/tmp"
    mount_dev
    # The machine's GPUs and NUMA nodes, where a driver and the kernel show them.
    mount --bind "$work/machine/proc/driver" "$node/proc/driver"
    for tree in bus/pci/devices devices/system/node; do
        mount --bind "$work/machine/sys/$tree" "$node/sys/$tree"
    done
}

# upgrade_node RELEASE: to another system, which keeps what the node's has beyond its
# packages, and of those gpubind's.
upgrade_node() {
    local layer stanza
    stanza=$(awk -v RS= '/^Package: gpubind\n/' "$node/var/lib/dpkg/status")
    unmount_node
    for layer in ${layers//:/ }; do
        [ ! -d "$layer/var/lib/dpkg" ] ||
            find "$layer/var/lib/dpkg" ! -type d ! -name 'gpubind.*' -delete
    done
    mount_node "$1"
    printf '\n%s\n' "$stanza" >>"$node/var/lib/dpkg/status"
}

unmount_node() {
    stop_slurm
    umount --recursive --lazy "$node"
}

mount_dev() {
    local name gpu
    mount -t tmpfs -o mode=755 dev "$node/dev"
    for name in null zero full random urandom tty; do
        cp --archive "/dev/$name" "$node/dev/$name"
    done
    mkdir "$node"/dev/{pts,shm}
    mount --bind /dev/pts "$node/dev/pts"
    mount -t tmpfs -o mode=1777 shm "$node/dev/shm"
    ln -s pts/ptmx "$node/dev/ptmx"
    ln -s /proc/self/fd "$node/dev/fd"
    for ((gpu = 0; gpu < 8; gpu++)); do mknod -m 666 "$node/dev/nvidia$gpu" c 195 "$gpu"; done
    mknod -m 666 "$node/dev/nvidiactl" c 195 255
}

# What a site's Slurm has before gpubind comes, and NVIDIA's driver.
furnish_node() {
    useradd --root "$node" --no-create-home --home-dir /tmp --shell /bin/bash alice
    mkdir -p "$node"/etc/{slurm,munge} "$node"/var/log/slurm "$node/usr/lib/nvidia"
    (umask 077 && head -c 1024 /dev/urandom >"$node/etc/munge/munge.key")
    chown root:root "$node/etc/munge" "$node/etc/munge/munge.key"
    echo "127.0.0.1 localhost $node_name" >"$node/etc/hosts"
    node_slurm_conf >"$node/etc/slurm/slurm.conf"
    echo "Name=gpu File=/dev/nvidia[0-7]" >"$node/etc/slurm/gres.conf"
    rm -f "$node/etc/slurm/plugstack.conf"
    cp "$work"/machine/nvml/* "$node/usr/lib/nvidia/"
    echo /usr/lib/nvidia >"$node/etc/ld.so.conf.d/nvidia.conf"
}

node_slurm_conf() {
    cat <<END
ClusterName=site
SlurmctldHost=$node_name(127.0.0.1)
SlurmUser=root
StateSaveLocation=/var/spool/slurmctld
SlurmdSpoolDir=/var/spool/slurmd
SlurmctldLogFile=/var/log/slurm/slurmctld.log
SlurmdLogFile=/var/log/slurm/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/affinity
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0
NodeName=$node_name NodeAddr=127.0.0.1 Sockets=2 CoresPerSocket=1 ThreadsPerCore=1 Gres=gpu:8
PartitionName=main Nodes=ALL Default=YES State=UP
END
}

node_env=(env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C)

# on_node COMMAND...: as root in the node.
on_node() { chroot "$node" "${node_env[@]}" HOME=/root "$@"; }

# as_alice COMMAND...: as a user there.
as_alice() { chroot --userspec=alice:alice "$node" "${node_env[@]}" HOME=/tmp USER=alice "$@"; }

start_slurm() {
    # Slurm reads the state of the few releases before it only.
    rm -rf "$node"/var/spool/slurm{ctld,d}
    mkdir -p "$node"/var/spool/slurm{ctld,d} "$node/run/munge"
    # The library cache belongs to the system whose libraries it lists.
    on_node ldconfig
    daemon munged munged --foreground --force
    await_daemon munged test -S "$node/run/munge/munge.socket.2"
    daemon slurmctld slurmctld -D
    daemon slurmd slurmd -D
    await_daemon slurmd node_idles
}

restart_slurmd() {
    end_daemon slurmd
    daemon slurmd slurmd -D
    await_daemon slurmd node_idles
}

stop_slurm() {
    local name
    for name in slurmd slurmctld munged; do end_daemon "$name"; done
}

declare -A daemons=()

daemon() {
    local name=$1
    shift
    # No function, which would run in a shell in between: the process id is the daemon's.
    chroot "$node" "${node_env[@]}" setsid "$@" </dev/null >>"$work/$name.out" 2>&1 &
    daemons[$name]=$!
}

end_daemon() {
    [ -n "${daemons[$1]-}" ] || return 0
    kill "${daemons[$1]}" 2>/dev/null || true
    wait "${daemons[$1]}" 2>/dev/null || true
    unset "daemons[$1]"
}

node_idles() { [ "$(on_node sinfo -h -o %T 2>/dev/null)" = idle ]; }

# await_daemon NAME CONDITION...
await_daemon() {
    local name=$1 tries
    shift
    for ((tries = 0; tries < 300; tries++)); do
        "$@" && return
        kill -0 "${daemons[$name]}" 2>/dev/null || break
        sleep 0.1
    done
    tail -n 20 "$work/$name.out" "$node/var/log/slurm/$name.log" >&2 || true
    die "$name is not ready"
}
