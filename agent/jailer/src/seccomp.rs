//! System call filter of a jail, compiled from the list that all drivers share.

use std::collections::BTreeMap;

use greenroom_jailer::denied_syscalls::{ArgumentComparison, ArgumentMatch, HIDDEN_SYSCALLS, denied_syscalls};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, apply_filter, sock_filter,
};

/// Compiled filters.
#[derive(Clone)]
pub struct SeccompFilters {
    denied: BpfProgram,
    hidden: BpfProgram,
}

impl SeccompFilters {
    /// Compiles the filters for this CPU architecture.
    ///
    /// # Errors
    /// Returns an error if the architecture is not supported.
    pub fn compile() -> seccompiler::Result<SeccompFilters> {
        let arch: TargetArch = std::env::consts::ARCH.try_into()?;
        let deny = SeccompAction::Errno(libc::EPERM as u32);
        let filter = SeccompFilter::new(rules()?, SeccompAction::Allow, deny, arch)?;
        Ok(SeccompFilters { denied: filter.try_into()?, hidden: hidden_syscalls() })
    }

    /// Puts this thread, and all that it starts, under the filters permanently. Sets
    /// `no_new_privs`.
    pub fn apply(&self) -> seccompiler::Result<()> {
        apply_filter(&self.hidden)?;
        apply_filter(&self.denied)
    }
}

fn rules() -> seccompiler::Result<BTreeMap<i64, Vec<SeccompRule>>> {
    let rules_of = |arguments: Vec<ArgumentMatch>| arguments.into_iter().map(rule).collect::<Result<_, _>>();
    denied_syscalls().into_iter().map(|call| Ok((call.number, rules_of(call.arguments)?))).collect()
}

/// Returns a rule for the lower 32 bits of the argument. The kernel reads these arguments as 32
/// bits, so a set upper bit would bypass a 64-bit comparison.
fn rule(ArgumentMatch { index, comparison }: ArgumentMatch) -> seccompiler::Result<SeccompRule> {
    let (operator, value) = match comparison {
        ArgumentComparison::HasBits(bits) => (SeccompCmpOp::MaskedEq(bits.into()), bits),
        ArgumentComparison::Equals(value) => (SeccompCmpOp::Eq, value),
        ArgumentComparison::Below(value) => (SeccompCmpOp::Lt, value),
        ArgumentComparison::Above(value) => (SeccompCmpOp::Gt, value),
    };
    Ok(SeccompRule::new(vec![SeccompCondition::new(index, SeccompCmpArgLen::Dword, operator, value.into())?])?)
}

/// Filter that reports the hidden calls and all x32 calls as missing (`ENOSYS`). The x32 calls are
/// the same calls under other numbers, so the list of denied calls would miss them.
fn hidden_syscalls() -> BpfProgram {
    const X32: u32 = 0x4000_0000;
    let step = |code: u32, jt: u8, jf: u8, k: u32| sock_filter { code: code as u16, jt, jf, k };
    let [(_, clone3)] = HIDDEN_SYSCALLS;
    vec![
        // The call number is the first word of a filter's input.
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 2, 0, X32),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, 0, clone3 as u32),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_compile() {
        let filters = SeccompFilters::compile().expect("the rules are valid");
        assert!(filters.denied.len() > denied_syscalls().len());
    }
}
