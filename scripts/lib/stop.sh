# shellcheck shell=bash
# shellcheck disable=SC2154 # variables are shared with the other parts
# cluster stop: nothing of the cluster is left. Sourced, never run.

cluster_stop() {
    local names=() all=no keep_logs=no name argument
    for argument in "$@"; do
        case $argument in
        --all) all=yes ;;
        --keep-logs) keep_logs=yes ;;
        -*) die "unknown option '$argument': see --help" ;;
        *) names+=("$argument") ;;
        esac
    done
    [ "$all" = no ] || mapfile -t names < <(cluster_names)
    [ ${#names[@]} -gt 0 ] || [ "$all" = yes ] || die "which cluster? give a NAME or --all"
    for name in "${names[@]}"; do need_cluster "$name"; done
    if [ "$EUID" -ne 0 ] && [ ${#names[@]} -gt 0 ]; then
        as_root "$here/cluster" stop "$@"
        return
    fi
    for name in "${names[@]}"; do remove_cluster "$name" "$keep_logs"; done
}

# remove_cluster NAME KEEP_LOGS. Works on whatever part of a cluster is there.
remove_cluster() {
    local name=$1 keep_logs=$2 dir=$clusters/$1 pidfile nodes=() daemons=()
    [ ! -e "$dir/run/nodes" ] || mapfile -t nodes <"$dir/run/nodes"
    for pidfile in "$dir"/run/*.pid; do
        [ ! -e "$pidfile" ] || [ "$pidfile" = "$dir/run/munged.pid" ] || daemons+=("$pidfile")
    done
    end_jobs "$name"
    stop_daemons "${daemons[@]}"
    kill_leftovers
    # Last, since the others need it to end in good order.
    stop_daemons "$dir/run/munged.pid"
    remove_cgroups
    if [ -e "$dir/run/short" ]; then remove_short "$(<"$dir/run/short")"; fi
    if [ "$keep_logs" = yes ]; then
        find "$dir" -mindepth 1 -maxdepth 1 ! -name log -exec rm -rf {} +
        say "logs of cluster $name: $dir/log"
    else
        rm -rf "$dir"
        rmdir "$clusters" 2>/dev/null || true
    fi
}

# Lets Slurm end its jobs itself, so that waiting commands hear of it.
end_jobs() {
    local jobs tries
    daemon_pid "$clusters/$1/run/slurmctld.pid" >/dev/null || return 0
    jobs=$(in_cluster "$1" squeue -h -o %A) || return 0
    [ -n "$jobs" ] || return 0
    # shellcheck disable=SC2086
    in_cluster "$1" scancel $jobs || return 0
    for ((tries = 0; tries < 50; tries++)); do
        [ -n "$(in_cluster "$1" squeue -h -o %A)" ] || break
        sleep 0.1
    done
}

in_cluster() {
    local name=$1
    shift
    (cluster_exec "$name" -- timeout 5 "$@") 2>/dev/null
}

# Uses dir and nodes of remove_cluster. Kills again until nothing new turns up:
# what is killed may just have forked.
kill_leftovers() {
    local tries pids
    for ((tries = 0; tries < 50; tries++)); do
        mapfile -t pids < <(leftovers)
        [ ${#pids[@]} -gt 0 ] || return 0
        kill -KILL "${pids[@]}" 2>/dev/null || true
        sleep 0.1
    done
    say "cluster $name: these processes did not end: ${pids[*]}"
}

# Process ids of this cluster's slurmstepds, known by their open log, of what
# descends from them, and of whatever is in its nodes' cgroups.
leftovers() {
    local node group link pid
    {
        for node in "${nodes[@]}"; do
            for group in $(node_cgroups "$node"); do
                find "$group" -name cgroup.procs -exec cat {} + 2>/dev/null || true
            done
        done
        for link in /proc/[0-9]*/exe; do
            [[ $(readlink "$link") == */slurmstepd* ]] || continue
            pid=${link#/proc/}
            pid=${pid%/exe}
            [ -z "$(find "/proc/$pid/fd" -lname "*$dir/log/*" 2>/dev/null)" ] || descend "$pid"
        done
    } | sort -un
}

# Prints a process and all below it.
descend() {
    local children child
    echo "$1"
    read -ra children < <(cat "/proc/$1/task"/*/children 2>/dev/null) || true
    for child in "${children[@]}"; do descend "$child"; done
}

# The top folders that slurmd makes for a node: cgroup v1, then v2.
node_cgroups() {
    local group
    for group in /sys/fs/cgroup/*/"slurm_$1" /sys/fs/cgroup/system.slice/"$1_slurmstepd.scope"; do
        [ ! -d "$group" ] || echo "$group"
    done
}

remove_cgroups() {
    local node group
    for node in "${nodes[@]}"; do
        for group in $(node_cgroups "$node"); do
            find "$group" -depth -type d -exec rmdir {} + || true
        done
    done
}

# The pattern is a fence: nothing else is ever removed, whatever the file says.
remove_short() {
    [[ $1 == /tmp/gpubind.?????? ]] || return 0
    rm -f "$1/c"
    rmdir "$1" 2>/dev/null || true
}
