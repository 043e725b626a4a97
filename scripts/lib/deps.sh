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

need_rust() {
    local have
    have=$(cargo --version 2>/dev/null | cut -d' ' -f2) ||
        die "cargo not found: install a Rust toolchain, 1.85 or later (https://rustup.rs)"
    [ "$(printf '%s\n' 1.85 "$have" | sort -V | head -n1)" = 1.85 ] ||
        die "Rust $have is too old: 1.85 or later is needed (rustup update stable)"
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
