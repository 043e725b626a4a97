# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # variables are shared with the other parts
# Builds all that a machine gets installed, by scripts/install or by a package,
# and lays it out in target/dist. Sourced, never run.

dist=$root/target/dist

build_dist() {
    say "building gpubind (the first time takes some minutes)"
    build_release gpubind spank-gpubind gpubind-worker
    rm -rf "$dist"
    mkdir -p "$dist"/{bin,lib,etc}
    # Manuals and completions are the same however the writer is built.
    (cd "$root" && cargo run --quiet -p gpubind-docs -- "$dist") || die "cannot write the man pages"
    gzip --best --no-name "$dist"/man/*
    install -m 755 "$built/gpubind" "$dist/bin/gpubind"
    install -m 644 "$built/libspank_gpubind.so" "$dist/lib/spank_gpubind.so"
    install -m 644 "$built_worker/libgpubind_worker.so" "$dist/lib/libgpubind_worker.so"
    install -m 644 "$root/etc/gpubind.toml" "$dist/etc/gpubind.toml"
    # The name comes after pyxis.conf where a pattern includes both, and so should the line.
    install -m 644 "$root/etc/plugstack.conf.d/zz-gpubind.conf" "$dist/etc/zz-gpubind.conf"
    install -m 644 "$root/etc/enroot/mounts.d/50-gpubind.fstab" "$dist/etc/50-gpubind.fstab"
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
