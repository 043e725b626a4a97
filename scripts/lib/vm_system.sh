# shellcheck shell=bash
# shellcheck disable=SC2154 # variables are shared with the other parts
# What a virtual node starts with: Debian's kernel, and an initramfs that finds the
# shared system. Made once. Sourced, never run.
#
# Debian's cloud kernel has no 9p, so it is the full one; of its modules only those
# that the initramfs needs are kept.

vm_system=$root/target/tools/vm
vm_release=trixie
# In the order in which they are loaded: each needs those before it.
vm_modules=(netfs 9pnet 9pnet_virtio 9p overlay)

# install_qemu: qemu, and cpio for the initramfs.
install_qemu() {
    local missing=()
    command -v qemu-system-x86_64 >/dev/null || missing+=(qemu-system-x86)
    command -v cpio >/dev/null || missing+=(cpio)
    command -v xz >/dev/null || missing+=(xz-utils)
    [ ${#missing[@]} -eq 0 ] && return
    command -v apt-get >/dev/null ||
        die "not found: ${missing[*]}. Install them with this system's package manager, then try again"
    say "installing ${missing[*]}"
    apt_install_idle "${missing[@]}"
}

# Makes kernel and initramfs where they are missing. Needs root.
make_vm_system() {
    local lock
    make_root "$vm_release"
    mkdir -p "$vm_system"
    # The folder itself: no file is left. One makes it, others wait.
    exec {lock}<"$vm_system"
    flock "$lock"
    [ -e "$vm_system/vmlinuz" ] || fetch_kernel
    pack_initramfs
    exec {lock}<&-
}

# The kernel, its modules and a static busybox, from Debian's packages.
fetch_kernel() (
    work=$vm_system/new
    say "fetching Debian $vm_release's kernel, once"
    rm -rf "$work"
    mkdir -p "$work"
    trap 'rm -rf "$work"' EXIT
    trap 'exit 130' INT TERM
    cd "$work"
    # shellcheck disable=SC2016
    admin_system "$roots/$vm_release" bash -euc '
        apt-get update -q
        kernel=$(apt-cache depends linux-image-amd64 | sed -n "s/^ *Depends: \(linux-image-[0-9].*-amd64\)$/\1/p")
        apt-get download -q "$kernel" busybox-static
    ' >fetch.log 2>&1 || { tail -n 15 fetch.log >&2 && die "cannot fetch the kernel"; }
    for package in ./*.deb; do dpkg-deb -x "$package" files; done
    for module in "${vm_modules[@]}"; do
        file=$(find files -name "$module.ko*")
        case $file in
        *.xz) xz -dc "$file" >"../$module.ko" ;;
        *.ko) cp "$file" "../$module.ko" ;;
        *) die "Debian's kernel has no module $module" ;;
        esac
    done
    cp files/usr/bin/busybox ..
    mv files/boot/vmlinuz-* ../vmlinuz
)

# The initramfs: so small that it is made each time, with the init of this checkout.
pack_initramfs() (
    work=$vm_system/initramfs
    rm -rf "$work"
    trap 'rm -rf "$work"' EXIT
    mkdir -p "$work"/{bin,modules,proc,sys,dev,lower,upper,system}
    cp "$vm_system/busybox" "$work/bin/"
    ln -s busybox "$work/bin/sh"
    cp "$vm_system"/*.ko "$work/modules/"
    printf '%s\n' "${vm_modules[@]}" >"$work/modules/order"
    install -m 755 "$root/tests/vm/guest/init" "$work/init"
    cd "$work"
    find . | cpio --create --format=newc --owner=0:0 --quiet >"$vm_system/initramfs.cpio"
)
