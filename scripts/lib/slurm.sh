# shellcheck shell=bash
# The one place that knows how to run a Slurm program of a given release.
# Sourced, never run.
#
# A release is `host`: what this machine has installed. Another release would
# be a folder with a Debian system in it, entered here with chroot.

need_release() {
    case $1 in
    host) ;;
    *) die "unknown Slurm release '$1': use 'host', the one installed here" ;;
    esac
}

# in_release RELEASE PROGRAM ARGS...: becomes that program, so that the process
# id of the caller's subshell is the program's.
in_release() {
    local release=$1
    shift
    need_release "$release"
    exec "$@"
}

# Prints MAJOR.MINOR, such as 22.05.
release_version() {
    (in_release "$1" slurmd -V) | sed -E 's/^[^0-9]*([0-9]+\.[0-9]+).*/\1/'
}

# is_at_least 23.02 VERSION
is_at_least() {
    [ "$(printf '%s\n' "$1" "$2" | sort -V | head -n1)" = "$1" ]
}
