# shellcheck shell=bash
# The one place that knows how to run a Slurm program of a given release.
# Sourced, never run.
#
# A release is `host`, what this machine has installed, or the name of a Debian
# whose Slurm runs in a system of its own, see lib/roots.sh.

releases=(host trixie forky)

check_release() {
    [[ " ${releases[*]} " == *" $1 "* ]] ||
        die "unknown Slurm release '$1': use host, the one installed here, or Debian's trixie or forky"
}

# install_release RELEASE PACKAGE...: installs what is missing of a release, and
# of packages beyond Slurm. Those go into systems of our own only.
install_release() {
    if [ "$1" = host ]; then
        [ $# -eq 1 ] || die "no packages are added to this machine: --with needs --slurm trixie or forky"
        install_deps
    else
        make_root "$1"
        name_host "$roots/$1"
        [ $# -eq 1 ] || add_packages "$@"
    fi
}

# in_release RELEASE PROGRAM ARGS...: becomes that program, so that the process
# id of the caller's subshell is the program's. It finds hosts_file, where that is
# set, in place of its system's /etc/hosts; on the host there is no such thing.
in_release() {
    local release=$1
    shift
    if [ "$release" = host ]; then exec "$@"; fi
    [ "$EUID" -eq 0 ] || die "Slurm of Debian $release runs in a system of its own: entering it needs root"
    in_system "$roots/$release" "$@"
}

# Prints MAJOR.MINOR, such as 22.05.
release_version() {
    (in_release "$1" slurmd -V) | sed -E 's/^[^0-9]*([0-9]+\.[0-9]+).*/\1/'
}

# is_at_least 23.02 VERSION
is_at_least() {
    [ "$(printf '%s\n' "$1" "$2" | sort -V | head -n1)" = "$1" ]
}
