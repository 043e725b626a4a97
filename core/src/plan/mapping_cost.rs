//! What a mapping costs that somebody else has made.

use crate::node::{Device, IdSet, Node};

use super::cost::Problem;
use super::{Cost, PlanError, check};

/// The cost of giving `devices[list[i]]` to task *i*, in the same numbers as
/// [`super::Plan::cost`], so that mappings can be compared.
///
/// # Errors
/// Those of [`super::plan`]; a list that has not one entry for each task, or an
/// entry beyond the devices, is [`PlanError::NotInNode`] with that position.
pub fn mapping_cost(
    node: &Node,
    devices: &[Device],
    tasks: &[IdSet],
    list: &[usize],
) -> Result<Cost, PlanError> {
    check(node, devices, tasks.len())?;
    if let Some(wrong) = list.iter().position(|device| *device >= devices.len()) {
        return Err(PlanError::NotInNode(wrong));
    }
    if list.len() != tasks.len() {
        return Err(PlanError::NotInNode(list.len().min(tasks.len())));
    }
    Ok(Problem::new(node, devices, tasks, 1).cost(list))
}
