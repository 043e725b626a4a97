# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # variables are shared with the other parts
# Writes a cluster's configuration. Sourced, never run.
#
# Reads what `cluster start` has settled: dir (the cluster's folder), short (a
# short path to the same folder), name, nodes, ports, constrain, release,
# cgroup (v1, v2 or none), usable_cpus, machine, gpu_files, gres, gres_lines,
# fake_gpus, plugstack and site_config.

# cgroup_kind: what Slurm can use here.
cgroup_kind() {
    local mount=/sys/fs/cgroup probe
    if [ "$(stat -fc %T "$mount")" = cgroup2fs ]; then
        probe=$mount/gpubind-probe.$$
    elif [ -d "$mount/freezer" ] && [ -d "$mount/devices" ] && [ -d "$mount/cpuset" ]; then
        probe=$mount/devices/gpubind-probe.$$
    else
        echo none
        return
    fi
    if ! mkdir "$probe" 2>/dev/null; then
        echo none
        return
    fi
    rmdir "$probe"
    [ "$probe" = "$mount/gpubind-probe.$$" ] && echo v2 || echo v1
}

# Sets shape and hwloc: the CPUs in slurm.conf, and those that slurmd
# is to find.
#
# slurm.conf must have as many CPUs as the fixture has (and in 16 at least, or
# a test could not start many tasks), but a task can only be bound to a CPU that
# exists. So they are the cores of one socket, jobs get whole sockets and share
# them, and slurmd finds just those cores that exist: whatever a job asks for,
# it may use every real CPU, and `--cpu-bind=map_cpu:1,0` means what it says.
# What Slurm would bind to by itself means nothing here: it is off by default.
shape_node() {
    local list cpus=0 cores
    if [ "$machine" = real ]; then
        shape=$( (in_release "$release" slurmd -C) | grep -o 'SocketsPerBoard=[0-9]* CoresPerSocket=[0-9]* ThreadsPerCore=[0-9]*')
        consumes=CR_Core
        hwloc=''
        return
    fi
    for list in "$dir"/root/sys/devices/system/node/node*/cpulist; do
        if [ -s "$list" ]; then cpus=$((cpus + $(count_cpus "$(<"$list")"))); fi
    done
    [ "$cpus" -gt 0 ] || cpus=16
    cores=$usable_cpus
    if [ "$cores" -eq 0 ] || [ "$cores" -gt "$cpus" ]; then cores=$cpus; fi
    [ "$cpus" -ge 16 ] || cpus=16
    shape="Sockets=1 CoresPerSocket=$cpus ThreadsPerCore=1 CpuBind=none"
    consumes=CR_Socket
    hwloc="pack:1 core:$cores pu:1"
}

# Prints how many CPUs, from 0 on, this process may use: 2 for `0-1,8`.
count_usable_cpus() {
    local allowed
    allowed=$(sed -n 's/^Cpus_allowed_list:[[:space:]]*\([0-9-]*\).*/\1/p' /proc/self/status)
    if [ "${allowed%-*}" = 0 ]; then echo $((${allowed#*-} + 1)); else echo 0; fi
}

# count_cpus 0-3,8 prints 5.
count_cpus() {
    local range count=0
    for range in ${1//,/ }; do
        count=$((count + ${range#*-} - ${range%-*} + 1))
    done
    echo "$count"
}

write_config() {
    local etc=$dir/etc
    shape_node
    slurm_conf >"$etc/slurm.conf"
    gres_conf >"$etc/gres.conf"
    # What Slurm takes for the result of its AutoDetect (gres_gpu.c).
    rm -f "$etc/fake_gpus.conf"
    [ -z "$fake_gpus" ] || printf '%s\n' "${fake_gpus//\/dev\//$dir/root/dev/}" >"$etc/fake_gpus.conf"
    cgroup_conf >"$etc/cgroup.conf"
    printf '%s\n' "$plugstack" >"$etc/plugstack.conf"
    (umask 022 && site_file >"$etc/gpubind.toml")
    (umask 077 && head -c 1024 /dev/urandom >"$etc/munge.key")
}

# Without CPU 0 nothing here can be bound: that CPU is in every node's shape.
task_plugins() {
    local affinity='' limits=''
    [ "$usable_cpus" -eq 0 ] || affinity=,task/affinity
    [ "$cgroup" = none ] || limits=,task/cgroup
    # The order that each release's manual wants. In later ones a cgroup that
    # comes second would widen the mask again.
    if is_at_least 23.11 "$(release_version "$release")"; then
        affinity=$limits$affinity
    else
        affinity=$affinity$limits
    fi
    [ -n "$affinity" ] || affinity=,task/none
    echo "${affinity#,}"
}

slurm_conf() {
    local track=proctrack/cgroup types i
    [ "$cgroup" != none ] || track=proctrack/linuxproc
    [ -n "$gres" ] || [ ${#gpu_files[@]} -eq 0 ] || gres=gpu:${#gpu_files[@]}
    types=$(tr ',' '\n' <<<"gpu,$gres" | sed -n 's/^\([a-z]\+\).*/\1/p' | sort -u | paste -sd,)
    cat <<END
ClusterName=$name
SlurmctldHost=$(hostname -s)(127.0.0.1)
SlurmctldPort=${ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$short/run/munge.socket
StateSaveLocation=$dir/spool/ctld
SlurmdSpoolDir=$short/spool/%n
SlurmctldPidFile=$dir/run/slurmctld.slurm
SlurmdPidFile=$dir/run/%n.slurm
SlurmctldLogFile=$dir/log/slurmctld.log
SlurmdLogFile=$dir/log/%n.log
SlurmdDebug=debug
PlugStackConfig=$dir/etc/plugstack.conf
ProctrackType=$track
TaskPlugin=$(task_plugins)
SelectType=select/cons_tres
SelectTypeParameters=$consumes
GresTypes=$types
MpiDefault=none
SlurmdParameters=config_overrides
# Quick rather than economical: a test waits for each of these.
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,bf_interval=1
ReturnToService=2
KillWait=2
MessageTimeout=10
SlurmctldTimeout=30
SlurmdTimeout=30
PropagateResourceLimits=NONE
END
    for ((i = 0; i < nodes; i++)); do
        echo "NodeName=$name-$i NodeHostname=$(hostname -s) NodeAddr=127.0.0.1 Port=${ports[i + 1]} $shape${gres:+ Gres=$gres}"
    done
    # Several jobs may share CPUs: the machine may have fewer than a test has jobs.
    echo "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:16"
    echo "PartitionName=other Nodes=ALL MaxTime=INFINITE State=UP OverSubscribe=FORCE:16"
}

# One line per GPU, in PCI order, which need not be the order of the numbers in
# the file names. No AutoDetect: it would look at the real machine.
gres_conf() {
    if [ -n "$gres_lines" ]; then
        printf '%s\n' "${gres_lines//\/dev\//$dir/root/dev/}"
        return
    fi
    [ ${#gpu_files[@]} -eq 0 ] || printf 'Name=gpu File=%s\n' "${gpu_files[@]}"
}

# What --site-config says: a file's text, or the text itself.
site_file() {
    if [ -f "$site_config" ]; then cat "$site_config"; else printf '%s\n' "$site_config"; fi
}

cgroup_conf() {
    [ "$cgroup" != none ] || return 0
    cat <<END
CgroupPlugin=cgroup/$cgroup
CgroupMountpoint=/sys/fs/cgroup
ConstrainDevices=$constrain
ConstrainCores=no
ConstrainRAMSpace=no
END
    [ "$cgroup" = v1 ] || echo IgnoreSystemd=yes
}
