//! What `cpus=local` makes of the CPUs of a node's tasks, and of the workers of one task.

use gpubind_shim_core::cpus::MOST_TEXT;

use crate::node::IdSet;
use crate::plan::Plan;

use super::cpus::{Claim, Kept, Part, local_parts};
use super::rank::Rank;

/// The CPUs in effect on a node.
pub(super) struct LocalCpus {
    /// Those of each task, by local rank; empty where unknown.
    pub tasks: Vec<IdSet>,
    /// Those of the rank itself; `None` where it is not known what is local to it.
    pub own: Option<IdSet>,
    /// For `omp`: how many cores the rank, or each of its workers, has; `None` where that is
    /// not for gpubind to tell.
    pub cores: Option<usize>,
    /// Local ranks none of whose CPUs is local to their devices.
    pub remote: IdSet,
    /// For the worker shim's record: the part of each of the rank's devices.
    pub workers: String,
}

impl LocalCpus {
    /// All tasks find the same parts, each by itself.
    pub fn of(rank: &Rank, plan: &Plan) -> LocalCpus {
        let claims: Vec<Claim> = (0..plan.shares.tasks().max(rank.tasks.count()))
            .map(|task| Claim {
                allowed: allowed(rank, task),
                local: plan.shares.get(task).and_then(|share| local(rank, share)),
            })
            .collect();
        let parts = local_parts(&claims, rank.threads);
        let is_remote = |part: &Result<Part, Kept>| *part == Err(Kept::NoneLocal);
        let remote = parts.iter().enumerate().filter(|(_, part)| is_remote(part));
        let in_effect = |(claim, part): (&Claim, &Result<Part, Kept>)| match part {
            Ok(part) => part.cpus.clone(),
            Err(_) => claim.allowed.clone(),
        };
        let mut all = LocalCpus {
            remote: remote.map(|(task, _)| task).collect(),
            tasks: claims.iter().zip(&parts).map(in_effect).collect(),
            own: None,
            cores: None,
            workers: String::new(),
        };
        // It may have lost some since slurmstepd has looked.
        let own = all.tasks.get(rank.local_rank).map(|own| own.intersection(rank.cpus));
        let (Some(own), Some(part)) =
            (own.filter(|own| !own.is_empty()), parts.get(rank.local_rank))
        else {
            return all;
        };
        match part {
            Ok(part) => all.cores = Some(part.cores),
            Err(Kept::Unknown) => return all,
            Err(Kept::NoneLocal) => {}
        }
        if let Some(share) = plan.shares.get(rank.local_rank).filter(|share| share.len() > 1) {
            all.share_out(rank, share, &own);
        }
        all.own = Some(own);
        all
    }

    /// The rank's CPUs for its workers, of which each has one of its devices.
    fn share_out(&mut self, rank: &Rank, share: &[usize], own: &IdSet) {
        let claim = |device: &usize| Claim {
            allowed: own.clone(),
            local: local(rank, std::slice::from_ref(device)),
        };
        let claims: Vec<Claim> = share.iter().map(claim).collect();
        let parts = local_parts(&claims, rank.threads);
        self.cores = parts.iter().flatten().map(|part| part.cores).min();
        let text = |part: &Result<Part, Kept>| {
            part.as_ref().map_or_else(|_| String::new(), |part| part.cpus.to_string())
        };
        let text = parts.iter().map(text).collect::<Vec<_>>().join("/");
        // No real machine has as much; the environment must not run over.
        self.workers = Some(text).filter(|text| text.len() <= MOST_TEXT).unwrap_or_default();
    }
}

/// A task's CPUs; of one of which nothing is known, those of the rank that asks.
fn allowed(rank: &Rank, task: usize) -> IdSet {
    let known = rank.tasks.all().get(task).filter(|cpus| !cpus.is_empty());
    known.unwrap_or(rank.cpus).clone()
}

/// The CPUs that are local to these devices of the step, if that is known of all.
fn local(rank: &Rank, share: &[usize]) -> Option<IdSet> {
    let node = rank.node.ok()?;
    let mut all = Vec::new();
    for at in share {
        let gpu = node.gpu(rank.allocation.entries.get(*at)?.device?)?;
        let cpus = gpu.cpus.known().filter(|cpus| !cpus.is_empty())?;
        all.extend(cpus.iter());
    }
    Some(all.into_iter().collect())
}
