# shellcheck shell=bash
# shellcheck disable=SC2154 # variables are shared with the other parts
# The steps of scripts/walkthrough. Sourced, never run.

plugin=/usr/lib/gpubind/spank_gpubind.so
site=/etc/gpubind.toml
# Two ranks, one on each CPU, of which each has its own four GPUs nearby.
step="srun -n2 --gpus=8 --cpu-bind=map_cpu:0,1"

# walk RELEASE [NEXT RELEASE]...
walk() {
    prepare_namespaces
    mount_node "$1"
    furnish_node
    start_slurm
    say_release
    renames_the_line
    installs
    checks_the_node
    binds_a_job
    sets_a_default
    breaks_and_fixes
    replaces_under_a_step
    shift
    while [ $# -gt 0 ]; do
        upgrades_slurm "$1"
        shift
    done
    uninstalls
    say "the walk is done: every answer was right"
}

installs() {
    headline "Install the package, add one line, restart slurmd"
    is_clean
    cp "$root"/target/packages/gpubind_*.deb "$node/root/"
    files_of_node >"$work/before"
    root_types "dpkg -i /root/gpubind_*.deb"
    root_types "echo 'include /etc/slurm/plugstack.conf.d/*.conf' >>/etc/slurm/plugstack.conf"
    restarts_slurmd
}

# An earlier version had the plugin's line in a file that sorts before pyxis.conf.
renames_the_line() {
    local old=/etc/slurm/plugstack.conf.d/gpubind.conf new=/etc/slurm/plugstack.conf.d/zz-gpubind.conf
    headline "Upgrade from a version that had its line in gpubind.conf"
    is_clean
    files_of_node >"$work/before"
    earlier_package >"$work/earlier.log" || { cat "$work/earlier.log" && wrong "no earlier package"; }
    cp "$root"/target/packages/gpubind_*.deb "$node/root/"
    root_types "dpkg -i /root/earlier.deb && dpkg -i /root/gpubind_*.deb"
    root_types "ls /etc/slurm/plugstack.conf.d"
    [ "$answer" = zz-gpubind.conf ] || wrong "only the new file should be there"
    root_types "dpkg --purge gpubind && dpkg -i /root/earlier.deb"
    root_types "sed -i 's/^optional .*/& ids=uuid/' $old"
    root_types "dpkg -i /root/gpubind_*.deb"
    root_types "ls /etc/slurm/plugstack.conf.d; grep ^optional $new"
    grep -qx "optional $plugin ids=uuid" <<<"$answer" || wrong "the admin's change is lost"
    [ ! -e "$node$old" ] || wrong "the old file is still there"
    root_types "dpkg --purge gpubind"
    rm "$node"/root/*.deb
    find "$node"/etc/slurm/plugstack.conf.d -name 'zz-gpubind.conf.dpkg-*' -delete
    is_clean
}

# This version under another number, with that name.
earlier_package() {
    local folder=$work/earlier
    rm -rf "$folder"
    dpkg-deb -R "$root"/target/packages/gpubind_*.deb "$folder"
    sed -i 's/^Version: .*/Version: 0.0.1/' "$folder/DEBIAN/control"
    sed -i 's/zz-gpubind/gpubind/' "$folder/DEBIAN/conffiles"
    sed -i '/dpkg-maintscript-helper/d' "$folder"/DEBIAN/{preinst,postrm}
    sed -i '/^old=/d; /old/,/^fi/d' "$folder/DEBIAN/preinst"
    sed -i 's/zz-gpubind/gpubind/' "$folder"/DEBIAN/{preinst,postrm}
    rm -f "$folder/DEBIAN/postinst" "$folder/DEBIAN/md5sums"
    mv "$folder"/etc/slurm/plugstack.conf.d/{zz-,}gpubind.conf
    dpkg-deb --root-owner-group -b "$folder" "$node/root/earlier.deb"
}

checks_the_node() {
    headline "Is the node set up right?"
    # slurmd has the GPUs read in the background.
    await_daemon slurmd snapshot_is_there
    root_types "gpubind check"
}

snapshot_is_there() { [ -e "$node/run/gpubind/node.json" ]; }

binds_a_job() {
    headline "A user asks for it"
    alice_types "$step gpubind report"
    answers "CUDA_VISIBLE_DEVICES" 0
    answers " 0,1,2,3,4,5,6,7" 2
    alice_types "$step --gpu-bind=spank:single gpubind report"
    local_ranks 2
}

sets_a_default() {
    headline "A site default: every step is bound, one GPU for each rank"
    root_types "printf '%s\\n' 'default = \"always\"' 'mode = \"single\"' >>$site"
    root_types "gpubind config"
    alice_types "$step gpubind report"
    local_ranks 2
}

breaks_and_fixes() {
    headline "Break the site file: no job is stopped, and each gets a warning"
    root_types "echo 'mood = \"single\"' >>$site"
    root_types_in_vain "gpubind config"
    root_types_in_vain "gpubind check | grep -E '^(warning|broken)'"
    answers "$site:" 1
    alice_types "$step gpubind report"
    answers " 0,1,2,3,4,5,6,7" 2
    root_types "grep 'error: gpubind' /var/log/slurm/slurmd.log"
    answers "mood" 1
    headline "Fix it"
    root_types "sed -i '\$d' $site"
    alice_types "$step gpubind report"
    local_ranks 2
}

replaces_under_a_step() {
    local before after step_pid job
    headline "Install again while a step runs"
    before=$(stat -c %i "$node$plugin")
    say_typed '$' "srun -n1 --gpus=1 sh -c 'until [ -e /tmp/end ]; do sleep 0.1; done' &"
    as_alice srun -n1 --gpus=1 sh -c 'until [ -e /tmp/end ]; do sleep 0.1; done' &
    job=$!
    await_step
    step_pid=$(on_node pgrep -o slurmstepd)
    root_types "dpkg -i /root/gpubind_*.deb"
    after=$(stat -c %i "$node$plugin")
    [ "$before" != "$after" ] || wrong "the plugin was overwritten in place"
    grep -q "$plugin (deleted)" "/proc/$step_pid/maps" || wrong "the step does not have the old plugin"
    grep -q '^default = "always"' "$node$site" || wrong "the site file was overwritten"
    say_typed '$' "touch /tmp/end"
    as_alice touch /tmp/end
    say_typed '$' "wait"
    wait "$job" || wrong "the step failed"
    say_out "(the step ends well, with the plugin that it began with)"
}

upgrades_slurm() {
    local before
    before=$(sha256sum <"$node$plugin")
    upgrade_node "$1"
    start_slurm
    headline "Another Slurm under it, nothing else done: $(on_node slurmd -V)"
    [ "$(sha256sum <"$node$plugin")" = "$before" ] || wrong "the plugin is another one"
    root_types "dpkg --verify gpubind"
    root_types "gpubind check | grep -v '^ok'"
    alice_types "$step gpubind report"
    local_ranks 2
    alice_types "$step --gpu-bind=spank:ordered gpubind report"
    answers " 0,4,1,2,3,5,6,7" 2
}

uninstalls() {
    headline "Take it away"
    root_types "dpkg --remove gpubind"
    alice_types "$step hostname"
    [ "$answer" = "$node_name"$'\n'"$node_name" ] || wrong "the missing plugin is noticed"
    root_types "dpkg -i /root/gpubind_*.deb"
    alice_types "$step gpubind report"
    local_ranks 2
    root_types "dpkg --purge gpubind"
    root_types "sed -i '/^include/d' /etc/slurm/plugstack.conf"
    restarts_slurmd
    alice_types "$step hostname"
    [ "$answer" = "$node_name"$'\n'"$node_name" ] || wrong "the missing plugin is noticed"
    is_clean
    nothing_is_left
}

# --- what the steps are made of

headline() { printf '\n== %s\n' "$*"; }

say_release() {
    printf '%s, %s, without gpubind\n' "$(on_node sed -n 's/^PRETTY_NAME="\(.*\)"/\1/p' /etc/os-release)" "$(on_node slurmd -V)"
}

say_typed() { printf '%s %s\n' "$1" "$2"; }

say_out() { [ -z "$1" ] || printf '%s\n' "$1"; }

# Sets answer.
root_types() {
    say_typed '#' "$1"
    answer=$(on_node bash -o pipefail -c "$1" 2>&1 </dev/null) || { say_out "$answer" && wrong "it failed"; }
    say_out "$answer"
}

root_types_in_vain() {
    say_typed '#' "$1"
    answer=$(on_node bash -o pipefail -c "$1" 2>&1 </dev/null) && wrong "it did not fail"
    say_out "$answer"
}

alice_types() {
    # Else srun says that it waits for the job before.
    await_daemon slurmd node_idles
    say_typed '$' "$1"
    answer=$(as_alice bash -c "cd /tmp && $1" 2>&1 </dev/null) || { say_out "$answer" && wrong "it failed"; }
    say_out "$answer"
}

restarts_slurmd() {
    say_typed '#' "systemctl restart slurmd"
    restart_slurmd
}

# answers TEXT COUNT: in so many lines.
answers() {
    [ "$(grep -cF -- "$1" <<<"$answer")" -eq "$2" ] || wrong "'$1' should be there in $2 lines"
}

# local_ranks COUNT: so many ranks, each with one GPU that is local to its CPU.
local_ranks() {
    local ranks
    ranks=$(awk -F '  +' '$9 == "local" && $10 ~ /^[0-7]$/ { print $10 }' <<<"$answer" | sort -u | wc -l)
    [ "$ranks" -eq "$1" ] || wrong "$1 ranks should have a GPU of their own, nearby"
}

wrong() { die "this is not right: $*"; }

await_step() {
    local tries
    for ((tries = 0; tries < 100; tries++)); do
        [ -z "$(on_node pgrep -x sleep)" ] || return 0
        sleep 0.1
    done
    wrong "the step does not run"
}

# No file of ours anywhere that a package may put one.
is_clean() {
    local found
    found=$(find "$node"/{etc,usr,var,run,opt} -xdev -iname '*gpubind*' -print)
    [ -z "$found" ] || wrong "there is: $found"
}

# All files that the node has written, by their paths in it.
files_of_node() {
    local layer
    for layer in "$work"/layer.*[!p]; do
        (cd "$layer" && find . ! -type d ! -type c -print)
    done | sort -u
}

# Nothing is there that was not there before, but what dpkg and Slurm keep of their
# own.
nothing_is_left() {
    local path left=''
    while read -r path; do
        case $path in
        ./var/lib/dpkg/* | ./var/log/* | ./var/spool/slurm* | ./var/cache/man/* | ./etc/ld.so.cache) ;;
        ./var/cache/ldconfig/*) ;;
        ./etc/slurm/plugstack.conf) [ ! -s "$node/$path" ] || left+=" $path" ;;
        *) [ ! -e "$node/$path" ] || left+=" $path" ;;
        esac
    done < <(files_of_node | comm -13 "$work/before" -)
    [ -z "$left" ] || wrong "this is left:$left"
    headline "Nothing of it is left"
}
