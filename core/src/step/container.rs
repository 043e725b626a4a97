//! A container that a step asks for, which a container plugin enters in its own turn.

use std::path::Path;

use crate::node::{Roots, read_small};
use crate::variables;

/// What makes pyxis start or join a container (args.c, pyxis_args_enabled): an option of
/// the step, or a variable of its environment.
pub const CONTAINER_OPTIONS: [(&str, &str); 2] =
    [("container-image", variables::PYXIS_IMAGE), ("container-name", variables::PYXIS_NAME)];

/// What gpubind's packages bring for enroot.
const MOUNTS: &str = "etc/enroot/mounts.d/50-gpubind.fstab";

/// Whether enroot brings this file of gpubind's into each container.
pub fn is_mounted_by_enroot(roots: &Roots, file: &Path) -> bool {
    let text = read_small(&roots.fsroot().join(MOUNTS)).unwrap_or_default();
    is_mounted(&text, file)
}

/// Whether lines of fstab(5) bring a file to its own place.
fn is_mounted(text: &str, file: &Path) -> bool {
    text.lines().any(|line| {
        let mut words = line.split_whitespace();
        let (source, target) = (words.next(), words.next());
        source == target && source.is_some_and(|folder| file.parent() == Some(Path::new(folder)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_packaged_line_brings_the_shim_and_a_changed_one_does_not() {
        let packaged =
            concat!(env!("CARGO_MANIFEST_DIR"), "/../etc/enroot/mounts.d/50-gpubind.fstab");
        let text = std::fs::read_to_string(packaged).unwrap();
        let shim = Path::new("/usr/lib/gpubind/libgpubind_worker.so");
        assert!(is_mounted(&text, shim));
        assert!(!is_mounted(&text, Path::new("/opt/gpubind/lib/gpubind/libgpubind_worker.so")));
        assert!(!is_mounted(&text.replace("/usr/lib/gpubind ", "#/usr/lib/gpubind "), shim));
        assert!(!is_mounted("/usr/lib/gpubind /mnt none bind\n/usr/lib/gpubind\n\n", shim));
    }
}
