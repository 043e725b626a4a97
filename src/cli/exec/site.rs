//! What this machine's admin has set for `exec`, and where the worker shim is.

use std::env;
use std::fs::File;
use std::path::{Path, PathBuf};

use gpubind_core::bind::LIBRARY;
use gpubind_core::node::Roots;
use gpubind_core::site::{EffectiveSettings, JobInfo, LoadError, SITE_FILE, Site, load};

/// Reads gpubind.toml. plugstack.conf's arguments are the plugin's.
///
/// # Errors
/// [`LoadError`].
pub fn site(roots: &Roots, env: &dyn Fn(&str) -> Option<String>) -> Result<Site, LoadError> {
    let path = roots.fsroot().join(SITE_FILE.trim_start_matches('/'));
    let file = if path.exists() { load(&path)? } else { None };
    let job = JobInfo::read(env);
    let layers = file.iter().flat_map(|file| file.layers(&job));
    Ok(EffectiveSettings::new(layers).site())
}

/// The worker shim that belongs to this program: beside it, where a checkout's build has
/// it, or where an installation has it; else the site's.
pub fn shim(site: &Site) -> Option<String> {
    let program = env::current_exe().unwrap_or_default();
    let folder = program.parent().unwrap_or(Path::new("/"));
    let installed = Path::new("lib/gpubind").join(LIBRARY);
    let places: [PathBuf; 3] = [
        folder.join(LIBRARY),
        folder.parent().unwrap_or(folder).join(installed),
        site.worker.clone(),
    ];
    let is_readable = |file: &&PathBuf| {
        File::open(file).is_ok_and(|file| file.metadata().is_ok_and(|file| file.is_file()))
    };
    let file = places.iter().find(is_readable)?.to_str()?;
    // The dynamic linker parts LD_PRELOAD there.
    (!file.contains([':', ' '])).then(|| file.to_owned())
}
