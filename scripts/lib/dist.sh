# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # variables are shared with the other parts
# Builds all that a machine gets installed, by scripts/install or by a package,
# and lays it out in target/dist. Sourced, never run.

dist=$root/target/dist

# The oldest glibc for which Rust's own standard library is made.
oldest_glibc=2.17
# From PyPI, with the linker's libraries of each glibc.
zigbuild=(cargo-zigbuild==0.24.1 ziglang==0.17.1)
zig=$root/target/tools/zig

build_dist() {
    say "building gpubind (the first time takes some minutes)"
    build_release spank-gpubind gpubind-worker
    build_program
    rm -rf "$dist"
    mkdir -p "$dist"/{bin,lib,etc}
    # Manuals and completions are the same however the writer is built.
    (cd "$root" && cargo run --quiet -p gpubind-docs -- "$dist") || die "cannot write the man pages"
    gzip --best --no-name "$dist"/man/*
    install -m 755 "$program" "$dist/bin/gpubind"
    install -m 644 "$built/libspank_gpubind.so" "$dist/lib/spank_gpubind.so"
    install -m 644 "$built_worker/libgpubind_worker.so" "$dist/lib/libgpubind_worker.so"
    install -m 644 "$root/etc/gpubind.toml" "$dist/etc/gpubind.toml"
    # The name comes after pyxis.conf where a pattern includes both, and so should the line.
    install -m 644 "$root/etc/plugstack.conf.d/zz-gpubind.conf" "$dist/etc/zz-gpubind.conf"
    install -m 644 "$root/etc/enroot/mounts.d/50-gpubind.fstab" "$dist/etc/50-gpubind.fstab"
}

# Sets program. It also runs in containers of older systems, so it is linked by zig, which
# has the symbols of any glibc; all else runs where Slurm does.
build_program() {
    local target
    install_zig
    target=$(rustc -vV | sed -n 's/^host: //p')
    (
        cd "$root"
        PATH=$zig/bin:$PATH
        # Else they would be in the user's home.
        export ZIG_GLOBAL_CACHE_DIR=$zig/cache ZIG_LOCAL_CACHE_DIR=$zig/cache
        export CARGO_ZIGBUILD_CACHE_DIR=$zig/cache
        cargo zigbuild --quiet --release --target "$target.$oldest_glibc" -p gpubind
    ) || die "cargo zigbuild -p gpubind failed"
    program=${CARGO_TARGET_DIR:-$root/target}/$target/release/gpubind
}

# Once, in target/tools; some 440 MB.
install_zig() {
    [ ! -x "$zig/bin/cargo-zigbuild" ] || return 0
    if ! python3 -c 'import ensurepip, venv' 2>/dev/null; then
        command -v apt-get >/dev/null ||
            die "python3 with venv and pip not found: install it with this system's package manager, then try again"
        say "installing python3-venv, by which zig is installed"
        apt_install_idle python3-venv
    fi
    say "installing ${zigbuild[*]} in target/tools/zig, once"
    rm -rf "$zig"
    python3 -m venv "$zig.new" >&2 &&
        "$zig.new/bin/pip" install --quiet --only-binary :all: "${zigbuild[@]}" >&2 ||
        die "cannot install ${zigbuild[*]}"
    mv "$zig.new" "$zig"
}

# dist_files PREFIX prints a line for each file that is installed:
# KIND MODE SOURCE DESTINATION, where KIND is file, or config for what the admin may
# change.
dist_files() {
    local prefix=$1 page section
    echo "file 755 $dist/bin/gpubind $prefix/bin/gpubind"
    echo "file 644 $dist/lib/spank_gpubind.so $prefix/lib/gpubind/spank_gpubind.so"
    echo "file 644 $dist/lib/libgpubind_worker.so $prefix/lib/gpubind/libgpubind_worker.so"
    for page in "$dist"/man/*.gz; do
        section=${page%.gz}
        section=${section##*.}
        echo "file 644 $page $prefix/share/man/man$section/${page##*/}"
    done
    echo "file 644 $dist/completions/gpubind.bash $prefix/share/bash-completion/completions/gpubind"
    echo "file 644 $dist/completions/_gpubind $prefix/share/zsh/$(zsh_folder "$prefix")/_gpubind"
    echo "file 644 $dist/completions/gpubind.fish $prefix/share/fish/vendor_completions.d/gpubind.fish"
    # Where these are looked for does not depend on the prefix.
    echo "config 644 $dist/etc/gpubind.toml /etc/gpubind.toml"
    echo "config 644 $dist/etc/zz-gpubind.conf /etc/slurm/plugstack.conf.d/zz-gpubind.conf"
    echo "config 644 $dist/etc/50-gpubind.fstab /etc/enroot/mounts.d/50-gpubind.fstab"
}

# Debian's zsh looks in a folder of its own for what packages bring.
zsh_folder() {
    if [ "$1" = /usr ] && [ -e /etc/debian_version ]; then echo vendor-completions; else echo site-functions; fi
}
