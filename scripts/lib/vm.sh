# shellcheck shell=bash
# shellcheck disable=SC2154 # variables are shared with the other parts
# The commands of scripts/vm. Sourced, never run.
#
# The machine and this one share a folder, target/vm/NAME/share: what the machine is to
# install, and a folder for each command, where the machine leaves what it printed.

vm_start() {
    parse_vm_start "$@"
    [ "$build" = no ] || build_stage
    [ "$EUID" -eq 0 ] || { as_root "$here/vm" start "$@" --no-build; return; }
    install_qemu
    make_vm_system
    mkdir -p "$machines"
    mkdir "$dir" 2>/dev/null || die "machine '$name' exists: stop it first, or choose another --name"
    started=no
    trap 'vm_start_ends' EXIT
    trap 'exit 130' INT TERM
    choose_accelerator
    shape_vm "$numa"
    fill_share
    SECONDS=0
    boot_vm
    started=yes
    say "machine $name: 16 CPUs on $sockets sockets, $numa NUMA nodes, $vm_gpus GPUs; ready after $SECONDS s ($accelerator); try: scripts/vm exec $name -- srun -n8 --gpus=8 --gpu-bind=spank gpubind report"
}

parse_vm_start() {
    name=vm numa=2 build=yes
    while [ $# -gt 0 ]; do
        case $1 in
        --name | --numa) [ $# -ge 2 ] || die "$1 needs a value" ;;
        esac
        case $1 in
        --name) name=$2 && shift ;;
        --numa) numa=$2 && shift ;;
        --no-build) build=no ;;
        *) die "unknown option '$1': see --help" ;;
        esac
        shift
    done
    [[ $name =~ ^[a-z][a-z0-9-]{0,23}$ ]] ||
        die "bad machine name '$name': use up to 24 of a-z, 0-9 and -, a letter first"
    [[ $numa =~ ^[248]$ ]] || die "bad number of NUMA nodes '$numa': use 2, 4 or 8"
    dir=$machines/$name
}

# Whatever ends a start early, also Ctrl-C, leaves no machine behind.
vm_start_ends() {
    local status=$?
    trap '' INT TERM
    if [ "$started" != yes ]; then
        tail -n 20 "$dir"/qemu.log "$dir"/console "$dir"/share/log/* >&2 2>/dev/null || true
        remove_vm "$name"
    fi
    exit "$status"
}

# KVM can be opened on machines whose processor does not offer it: that does not run.
choose_accelerator() {
    if [ -w /dev/kvm ] && grep -qE '^flags.* (vmx|svm)( |$)' /proc/cpuinfo; then
        accelerator=kvm model=host features=''
    else
        # Page tables of five levels only cost time.
        accelerator=tcg model=max features=,la57=off
    fi
}

fill_share() {
    local file share=$dir/share
    mkdir -p "$share"/{jobs,log,stage,guest,slurm}
    for file in gpubind spank_gpubind.so libgpubind_worker.so libnvidia-ml.so.1 fake-machine; do
        cp "$stage/$file" "$share/stage/" || die "$stage/$file is missing: start without --no-build"
    done
    cp "$root"/etc/plugstack.conf.d/zz-gpubind.conf "$share/stage/"
    cp "$root"/tests/vm/guest/* "$share/guest/"
    vm_slurm_conf >"$share/slurm/slurm.conf"
    vm_cgroup_conf >"$share/slurm/cgroup.conf"
    echo "cpus=$vm_cpus cores=$cores gpus=$vm_gpus numa=$numa" >"$share/shape"
}

start_qemu() {
    local accel=$accelerator
    [ "$accel" = kvm ] || accel=tcg,thread=multi,tb-size=256
    start_daemon "$dir/qemu.pid" "$dir/qemu.log" host nice -n 5 qemu-system-x86_64 \
        -name "$name" -machine q35,hpet=off -accel "$accel" -cpu "$model$features" -nodefaults -no-reboot \
        -display none -serial "file:$dir/console" \
        -kernel "$vm_system/vmlinuz" -initrd "$vm_system/initramfs.cpio" \
        -append "console=ttyS0 panic=-1 quiet mitigations=off nmi_watchdog=0 rcupdate.rcu_cpu_stall_suppress=1 tsc=reliable random.trust_cpu=on" \
        -fsdev "local,id=system,path=$roots/$vm_release,security_model=none,readonly=on,multidevs=remap" \
        -device virtio-9p-pci,fsdev=system,mount_tag=system,bus=pcie.0 \
        -fsdev "local,id=share,path=$dir/share,security_model=none" \
        -device virtio-9p-pci,fsdev=share,mount_tag=share,bus=pcie.0 \
        "${qemu_shape[@]}"
}

# Under emulation a kernel's change of its own code may reach another CPU too late: one boot
# in ten ends so, in the first seconds. Then it is tried again.
boot_vm() {
    local tries
    for tries in 1 2 3; do
        start_qemu
        while daemon_pid "$dir/qemu.pid" >/dev/null; do
            [ ! -e "$dir/share/ready" ] || return 0
            [ "$SECONDS" -lt 600 ] || die "machine $name is not ready after 600 seconds"
            sleep 0.2
        done
        grep -q 'Kernel panic' "$dir/console" 2>/dev/null || die "machine $name has ended"
        say "the kernel of machine $name has failed (try $tries of 3)"
    done
    die "machine $name does not boot"
}

# Runs a command; its output comes when it has ended.
vm_exec() {
    local name=${1-} jobs job
    if [ $# -lt 3 ] || [ "$2" != -- ]; then die "usage: vm exec NAME -- COMMAND"; fi
    need_vm "$name"
    [ "$EUID" -eq 0 ] || { as_root "$here/vm" exec "$@"; return; }
    shift 2
    jobs=$machines/$name/share/jobs
    job=$(mktemp -d "$jobs/.XXXXXX")
    printf '%q ' "$@" >"$job/command"
    mv "$job" "$jobs/${job##*/.}"
    job=$jobs/${job##*/.}
    while [ ! -e "$job/code" ]; do
        daemon_pid "$machines/$name/qemu.pid" >/dev/null || die "machine $name has ended"
        sleep 0.1
    done
    cat "$job/out"
    cat "$job/err" >&2
    set -- "$(<"$job/code")"
    rm -rf "$job"
    return "$1"
}

vm_status() {
    local names=("$@") name pid
    [ $# -gt 0 ] || mapfile -t names < <(vm_names)
    [ ${#names[@]} -gt 0 ] || say "no machines"
    for name in "${names[@]}"; do
        need_vm "$name"
        if pid=$(daemon_pid "$machines/$name/qemu.pid"); then
            echo "$name  running, pid $pid, $(<"$machines/$name/share/shape")"
            vm_exec "$name" -- sinfo -N -o '%N %T %c CPUs %z %G' | sed 's/^/  /'
        else
            echo "$name  not running"
        fi
    done
}

vm_names() {
    local folder
    for folder in "$machines"/*/; do
        [ ! -d "$folder" ] || basename "$folder"
    done
}

need_vm() {
    [ -n "$1" ] && [ -d "$machines/$1/share" ] || die "no machine '$1': see 'vm status'"
}

vm_stop() {
    local names=("$@") name
    [ $# -gt 0 ] || die "which machine? give a NAME or --all"
    [ "$1" != --all ] || mapfile -t names < <(vm_names)
    for name in "${names[@]}"; do need_vm "$name"; done
    [ "$EUID" -eq 0 ] || { as_root "$here/vm" stop "$@"; return; }
    for name in "${names[@]}"; do remove_vm "$name"; done
}

# Its system is only read and all that it wrote is in its memory: it needs no farewell.
remove_vm() {
    stop_daemons "$machines/$1/qemu.pid"
    rm -rf "${machines:?}/$1"
    rmdir "$machines" 2>/dev/null || true
}
