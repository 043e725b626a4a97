# shellcheck shell=bash
# Daemons with pid files: start, look, stop. Sourced, never run.
#
# A pid file contains the process id and the process's start time; the two
# together never name another process, however old the file is.

# start_daemon PIDFILE OUTPUT RELEASE COMMAND...: in the background, in a
# session of its own, so that Ctrl-C in the terminal does not reach it, and in
# its log folder, where it may leave a core.
# Descriptor 9 is the port lock of `cluster start`: a daemon must not keep it.
start_daemon() {
    local pidfile=$1 output=$2 release=$3
    shift 3
    cd "${output%/*}" && in_release "$release" setsid "$@" </dev/null >>"$output" 2>&1 9>&- &
    printf '%s %s\n' "$!" "$(start_time "$!")" >"$pidfile"
    # Else bash would report how it ends.
    disown "$!"
}

# Prints when the process started, in clock ticks since boot; nothing if there
# is no such process or only its zombie. The fields of /proc/PID/stat are
# counted after the name, which may contain spaces: state, then 18 others.
start_time() {
    local stat
    stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 0
    # shellcheck disable=SC2086
    set -- ${stat##*) }
    [ "$1" = Z ] || printf '%s' "${20}"
}

# Prints the daemon's process id; fails when it is gone.
daemon_pid() {
    local pid='' started=''
    if [ -s "$1" ]; then read -r pid started <"$1"; fi
    [ -n "$started" ] && [ "$(start_time "$pid")" = "$started" ] && printf '%s' "$pid"
}

# Asks the daemons behind the pid files to end, waits, then insists.
stop_daemons() {
    local pidfile pid tries
    for pidfile in "$@"; do
        if pid=$(daemon_pid "$pidfile"); then kill -TERM "$pid" || true; fi
    done
    for pidfile in "$@"; do
        for ((tries = 0; tries < 100; tries++)); do
            pid=$(daemon_pid "$pidfile") || break
            [ "$tries" -ne 50 ] || kill -KILL "$pid" || true
            sleep 0.1
        done
    done
}
