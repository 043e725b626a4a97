# shellcheck shell=bash
# shellcheck disable=SC2154 # variables are shared with the other parts
# Builds what a node needs and puts it in one place, target/stage. Sourced,
# never run.

# build_stage [PROFILE]: release, as it is shipped; or dev, as cargo test has it, in a
# fraction of the time.
build_stage() {
    if [ "${1-release}" = dev ]; then
        build_dev gpubind spank-gpubind fake-nvml spank-host
    else
        build_release gpubind spank-gpubind fake-nvml gpubind-worker spank-host
    fi
    as_root mkdir -p "$stage"
    stage_file "$built/gpubind" gpubind
    stage_file "$built/libspank_gpubind.so" spank_gpubind.so
    stage_file "$built_worker/libgpubind_worker.so" libgpubind_worker.so
    stage_file "$built/libnvidia_ml.so" libnvidia-ml.so.1
    stage_file "$built/fake-machine" fake-machine
    stage_file "$built/spank-host" spank-host
    # What the tests have for pyxis.
    mkdir -p "$built/plugins"
    cc -Wall -Wextra -shared -fPIC -O1 -o "$built/plugins/spank_pyxis.so" "$root/tests/slurm/plugins/pyxis.c" ||
        die "cannot compile tests/slurm/plugins/pyxis.c"
    stage_file "$built/plugins/spank_pyxis.so" spank_pyxis.so
}

# build_release PACKAGE...: as they are shipped. Sets built and built_worker, the
# folders that then hold them.
build_release() {
    local package profile
    need_rust
    built=${CARGO_TARGET_DIR:-$root/target}/release
    built_worker=${CARGO_TARGET_DIR:-$root/target}/worker
    # One package at a time: built together, they would share the features of their
    # dependencies, and the plugin would get what only the program needs.
    for package in "$@"; do
        profile=release
        # Without unwinding, which the plugin needs: a profile of its own.
        [ "$package" != gpubind-worker ] || profile=worker
        build "$profile" -p "$package"
    done
}

# build_dev PACKAGE...: all at once, and the worker shim, whose profile is its own.
build_dev() {
    local package packages=()
    need_rust
    built=${CARGO_TARGET_DIR:-$root/target}/debug
    built_worker=${CARGO_TARGET_DIR:-$root/target}/worker
    for package in "$@"; do packages+=(-p "$package"); done
    build dev "${packages[@]}"
    build worker -p gpubind-worker
}

# build PROFILE WORD...: cargo's progress is for people.
build() {
    local quiet=(--quiet)
    [ ! -t 2 ] || quiet=()
    (cd "$root" && cargo build "${quiet[@]}" --profile "$@") || die "cargo build ${*:2} failed"
}

# Renames into place: a running slurmstepd may still map the file that is there.
stage_file() {
    if cmp -s "$1" "$stage/$2"; then return; fi
    as_root install -o root -g root -m 755 "$1" "$stage/.$2.new"
    as_root mv -fT "$stage/.$2.new" "$stage/$2"
}
