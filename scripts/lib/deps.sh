# shellcheck shell=bash
# Finds what the private clusters need on this machine, and installs what is
# missing on Debian and its relatives. Sourced, never run.

# Programs, and the Debian packages that bring them.
slurm_programs=(slurmctld slurmd srun sbatch scontrol munged)
slurm_packages=(slurmctld slurmd slurm-client munge)

# Debian keeps daemons in sbin folders, which a user's PATH often lacks.
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin

install_deps() {
    local missing=() program
    for program in "${slurm_programs[@]}"; do
        command -v "$program" >/dev/null || missing+=("$program")
    done
    [ ${#missing[@]} -eq 0 ] && return
    command -v apt-get >/dev/null ||
        die "not found: ${missing[*]}. Install Slurm (slurmctld, slurmd, srun, sbatch, scontrol) and munge with this system's package manager, then try again"
    say "installing ${slurm_packages[*]} (for ${missing[*]})"
    apt_install_idle "${slurm_packages[@]}"
    for program in "${missing[@]}"; do
        command -v "$program" >/dev/null || die "$program is still missing after the installation"
    done
}

# What counts and checks hooks outside Slurm: valgrind, whose headers mark them, and strace.
install_valgrind() {
    local missing=()
    command -v valgrind >/dev/null && [ -e /usr/include/valgrind/callgrind.h ] || missing+=(valgrind)
    command -v strace >/dev/null || missing+=(strace)
    [ ${#missing[@]} -eq 0 ] && return
    command -v apt-get >/dev/null ||
        die "not found: ${missing[*]}. Install them with this system's package manager, then try again"
    say "installing ${missing[*]}"
    apt_install_idle "${missing[@]}"
}

# Programs of containers, which the end-to-end tests start on this machine.
install_containers() {
    local missing=() pair
    for pair in bwrap:bubblewrap ch-run:charliecloud podman:podman runc:runc proot:proot; do
        command -v "${pair%:*}" >/dev/null || missing+=("${pair#*:}")
    done
    [ ${#missing[@]} -eq 0 ] && return
    command -v apt-get >/dev/null ||
        die "not found: ${missing[*]}. Install them with this system's package manager, then try again"
    say "installing ${missing[*]}"
    apt_install_idle "${missing[@]}"
}

# submitit from PyPI, for the end-to-end tests: in a folder that any Python here or in
# another Debian's system finds by PYTHONPATH, since it has no compiled parts.
submitit_version=1.5.4
install_submitit() {
    local folder=$root/target/tools/submitit
    [ ! -e "$folder/submitit-$submitit_version.dist-info" ] || return 0
    python3 -m ensurepip --version >/dev/null 2>&1 && python3 -m venv --help >/dev/null 2>&1 ||
        apt_install_idle python3-venv
    say "installing submitit $submitit_version from PyPI"
    rm -rf "$folder" "$folder.venv"
    python3 -m venv "$folder.venv"
    "$folder.venv/bin/pip" install --quiet --target "$folder" "submitit==$submitit_version"
    rm -rf "$folder.venv"
}

# The oldest Rust that builds this; Cargo.toml says the same to cargo.
oldest_rust=1.85

# Installs Rust and a linker where they are missing: Debian's own Rust if it is
# new enough (Debian 13), else by rustup for this user alone.
install_rust() {
    PATH=$PATH:${CARGO_HOME:-$HOME/.cargo}/bin
    if ! command -v cc >/dev/null; then
        command -v apt-get >/dev/null || die "cc not found: install a C compiler, such as gcc"
        say "installing gcc, which links Rust programs"
        apt_install_idle gcc libc6-dev
    fi
    if is_new_enough "$(rust_version cargo)"; then return; fi
    command -v apt-get >/dev/null || need_rust
    as_root apt-get update -q >&2
    if is_new_enough "$(apt-cache show cargo 2>/dev/null | sed -n 's/^Version: //p' | sort -V | tail -n 1)"; then
        say "installing Debian's Rust"
        apt_install_idle cargo rustc rustfmt rust-clippy
    else
        say "installing Rust for this user with rustup: Debian's is older than $oldest_rust"
        command -v curl >/dev/null || apt_install_idle curl ca-certificates
        curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs |
            sh -s -- -y --profile minimal --component rustfmt,clippy >&2
    fi
    need_rust
}

need_rust() {
    local have
    have=$(rust_version cargo)
    [ -n "$have" ] ||
        die "cargo not found: install a Rust toolchain, $oldest_rust or later (https://rustup.rs)"
    is_new_enough "$have" ||
        die "Rust $have is too old: $oldest_rust or later is needed (rustup update stable)"
}

rust_version() { "$1" --version 2>/dev/null | cut -d' ' -f2; }

is_new_enough() {
    [ -n "$1" ] && [ "$(printf '%s\n' "$oldest_rust" "$1" | sort -V | head -n 1)" = "$oldest_rust" ]
}

# Installs packages without questions and without their services: a cluster of
# ours starts its own daemons, and a machine that ran no Slurm before must not
# run one afterwards. Services that were there already stay as they are.
apt_install_idle() (
    policy=/usr/sbin/policy-rc.d own_policy='' idle=()
    for service in slurmctld slurmd munge; do
        service_exists "$service" || idle+=("$service")
    done
    # policy-rc.d is Debian's way to say that an installation starts nothing.
    trap '[ -z "$own_policy" ] || as_root rm -f "$policy"' EXIT
    if [ ! -e "$policy" ]; then
        own_policy=yes
        printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
        as_root chmod 755 "$policy"
    fi
    as_root apt-get update -q >&2
    as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -q --no-install-recommends "$@" </dev/null >&2
    # Nor may they start at the next boot.
    for service in "${idle[@]}"; do
        service_exists "$service" || continue
        if command -v systemctl >/dev/null; then
            as_root systemctl --quiet disable "$service"
        elif command -v update-rc.d >/dev/null; then
            as_root update-rc.d "$service" disable
        fi
    done
)

service_exists() {
    [ -e "/etc/init.d/$1" ] || [ -e "/lib/systemd/system/$1.service" ] ||
        [ -e "/etc/systemd/system/$1.service" ]
}
