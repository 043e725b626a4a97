# shellcheck shell=bash
# shellcheck disable=SC2154 # variables are shared with the other parts
# Debian systems with other Slurm releases than this machine's, for
# lib/slurm.sh. Sourced, never run.
#
# Each is a folder, made once with debootstrap and then reused. What is mounted
# in there, while it is made and while its programs run, is mounted in a
# namespace of that process's own: it ends with the process, however that ends,
# and nothing on this machine ever sees it.

roots=$root/target/slurm-roots
debian_mirror=${GPUBIND_DEBIAN_MIRROR:-http://deb.debian.org/debian}
debian_keys=/usr/share/keyrings/debian-archive-keyring.gpg

# make_root NAME: a Debian of that name with its Slurm. Takes some minutes.
make_root() {
    local name=$1 system=$roots/$1 lock
    [ ! -d "$system" ] || return 0
    [ "$EUID" -eq 0 ] || die "making $(relative "$system") needs root"
    install_debootstrap
    mkdir -p "$roots"
    # Locks the folder itself, so that no file is left. One makes it, others wait.
    exec {lock}<"$roots"
    flock -n "$lock" || { say "waiting: another process is making a system" && flock "$lock"; }
    [ -d "$system" ] || fill_root "$name" "$roots/.$name.new" "$roots/$name.log"
    exec {lock}<&-
}

# The folder gets its name when all is in it; what an earlier try has left goes.
fill_root() (
    name=$1 new=$2 log=$3
    say "making a Debian $name with its Slurm in $(relative "$roots/$name"), once (some minutes)"
    rm -rf "$new"
    trap 'rm -rf "$new"' EXIT
    trap 'exit 130' INT TERM
    : >"$log"
    say "  1 of 2: the base system ($(date +%T))"
    # An older debootstrap does not know a newer Debian; all newer ones are made
    # as sid is.
    logged unshare --mount -- debootstrap --variant=minbase --keyring="$debian_keys" \
        "$name" "$new" "$debian_mirror" sid
    say "  2 of 2: Slurm and munge ($(date +%T))"
    install_slurm "$name"
    say "  ready: $( (in_system "$new" slurmd -V)) ($(date +%T))"
    chmod 755 "$new"
    mv -T "$new" "$roots/$name"
    rm -f "$log"
)

# Uses new and log of fill_root.
install_slurm() {
    # Nothing may start in there, and it can be made again: no need to sync.
    printf '#!/bin/sh\nexit 101\n' >"$new/usr/sbin/policy-rc.d"
    chmod 755 "$new/usr/sbin/policy-rc.d"
    echo force-unsafe-io >"$new/etc/dpkg/dpkg.cfg.d/unsafe-io"
    cp /etc/resolv.conf "$new/etc/resolv.conf"
    # Fetches as this machine does: its proxy, and whether a mirror may be stale.
    if command -v apt-config >/dev/null; then
        apt-config dump --format '%f "%v";%n' Acquire::http Acquire::https \
            Acquire::Check-Valid-Until Acquire::Check-Date >"$new/etc/apt/apt.conf.d/this-machine"
    fi
    in_new_root() (admin_system "$new" "$@")
    logged in_new_root apt-get update -q
    # The Debian to come may lack a package for some time; its nursery has it.
    if [ "$1" = forky ] && ! in_new_root apt-cache show "${slurm_packages[@]}" >>"$log" 2>&1; then
        say "  Debian $1 has no Slurm now: taking sid's"
        echo "deb $debian_mirror sid main" >"$new/etc/apt/sources.list"
        logged in_new_root apt-get update -q
    fi
    logged in_new_root apt-get install -y -q --no-install-recommends "${slurm_packages[@]}"
    in_new_root apt-get clean
}

# add_packages NAME PACKAGE...: to the system of that name, which may be in use
# and may be older than the wish. What is there stays; dpkg knows what that is.
add_packages() (
    name=$1 system=$roots/$1 log=$roots/$1.log
    shift
    has_packages "$system" "$@" && return
    exec {lock}<"$roots"
    flock -n "$lock" || { say "waiting: another process is making a system" && flock "$lock"; }
    has_packages "$system" "$@" && return
    say "adding $* to $(relative "$system"), once (some minutes)"
    : >"$log"
    # What an interrupted installation has left is finished first.
    logged admin_system "$system" dpkg --configure -a
    logged admin_system "$system" apt-get update -q
    logged admin_system "$system" apt-get install -y -q --no-install-recommends "$@"
    logged admin_system "$system" apt-get clean
    rm -f "$log"
)

has_packages() {
    local system=$1
    shift
    [ "$(chroot "$system" dpkg-query --show --showformat '${db:Status-Abbrev}\n' "$@" 2>/dev/null |
        grep -c '^.i ')" -eq $# ]
}

logged() {
    "$@" </dev/null >>"$log" 2>&1 && return
    say "this failed: $*"
    tail -n 15 "$log" | sed 's/^/  /' >&2
    die "$(relative "$roots/$name") could not be made ready; all that was said is in $(relative "$log")"
}

install_debootstrap() {
    unshare --mount true ||
        die "another release than host runs in a system of its own, with mounts, which this machine does not allow"
    if ! command -v debootstrap >/dev/null || [ ! -e "$debian_keys" ]; then
        command -v apt-get >/dev/null ||
            die "debootstrap or $debian_keys not found: install debootstrap and debian-archive-keyring, or use --slurm host"
        say "installing debootstrap and debian-archive-keyring"
        apt_install_idle debootstrap debian-archive-keyring
    fi
}

# Paths as seen from the checkout, for messages.
relative() { echo "${1#"$root"/}"; }

# in_system FOLDER PROGRAM ARGS...: becomes that program, in the system in that
# folder. It sees this machine's /proc, /dev, /sys and /tmp, and the checkout,
# each at its own path, so that absolute paths mean the same in there; and this
# machine's users. Where hosts_file is set, that file is its /etc/hosts.
in_system() { enter_system "$1" "/etc/passwd /etc/group" "${@:2}"; }

# The same for programs that install: with the system's own users, because
# packages add some.
admin_system() (enter_system "$1" '' env DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 "${@:2}")

enter_system() {
    # The checkout comes first: what is mounted below it is not to come along.
    # shellcheck disable=SC2016
    exec unshare --mount -- bash -euc '
        system=$1 checkout=$2 folder=$3 shared=$4 hosts=$5
        shift 5
        # A root that is a mount of its own, as runc wants it.
        mount --bind "$system" "$system"
        mkdir -p "$system$checkout"
        for tree in "$checkout" /proc /dev /sys /tmp; do
            mount --rbind "$tree" "$system$tree"
        done
        for file in $shared; do
            mount --bind "$file" "$system$file"
        done
        [ -z "$hosts" ] || mount --bind "$hosts" "$system/etc/hosts"
        [ -d "$system$folder" ] || folder=/
        exec chroot "$system" env --chdir="$folder" "$@"
    ' in_system "$1" "$root" "$PWD" "$2" "${hosts_file-}" "${@:3}"
}

# name_host FOLDER: the system in it knows this machine's name. Renamed into
# place, because others may be reading; but only if it says something new, because
# that takes away what they have mounted over it.
name_host() {
    local hosts=$1/etc/hosts
    { cat /etc/hosts && echo "127.0.0.1 localhost $(hostname) $(hostname -s)"; } >"$hosts.$$"
    if cmp -s "$hosts.$$" "$hosts"; then rm "$hosts.$$"; else mv "$hosts.$$" "$hosts"; fi
}
