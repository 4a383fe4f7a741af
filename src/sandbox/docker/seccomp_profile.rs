//! System call profile of a container: the list that all drivers share, in the engine's format.
//!
//! The profile replaces the engine's default, which depends on the engine's version. Only calls of
//! the engine's own architecture are admitted. 32-bit programs do not run, as in the process
//! driver.

use std::sync::LazyLock;

use greenroom_jailer::denied_syscalls::{ArgumentComparison, ArgumentMatch, HIDDEN_SYSCALLS, denied_syscalls};
use serde_json::{Value, json};

/// Error numbers of a denied and of a hidden call, the same on all architectures.
const EPERM: u32 = 1;
const ENOSYS: u32 = 38;

/// Profile as the value of the security option `seccomp`.
pub(super) static PROFILE: LazyLock<String> = LazyLock::new(|| {
    let hidden = HIDDEN_SYSCALLS.map(|(name, _)| rule(name, ENOSYS, None));
    let denied = denied_syscalls().into_iter().flat_map(|call| match call.arguments.as_slice() {
        [] => vec![rule(call.name, EPERM, None)],
        // Rules of one call are alternatives. Conditions inside a rule are not.
        matches => matches.iter().map(|argument| rule(call.name, EPERM, Some(*argument))).collect(),
    });
    let rules: Vec<Value> = hidden.into_iter().chain(denied).collect();
    json!({ "defaultAction": "SCMP_ACT_ALLOW", "syscalls": rules }).to_string()
});

fn rule(name: &str, error: u32, argument: Option<ArgumentMatch>) -> Value {
    let conditions: Vec<Value> = argument.map(condition).into_iter().collect();
    json!({ "names": [name], "action": "SCMP_ACT_ERRNO", "errnoRet": error, "args": conditions })
}

/// Condition on an argument, of which the engine compares 64 bits and the kernel reads 32.
///
/// [`ArgumentComparison::Above`] matches every value with a set upper bit. The masks leave the
/// upper bits out.
fn condition(ArgumentMatch { index, comparison }: ArgumentMatch) -> Value {
    let (op, value, value_two) = match comparison {
        ArgumentComparison::HasBits(bits) => ("SCMP_CMP_MASKED_EQ", bits, bits),
        ArgumentComparison::Equals(value) => ("SCMP_CMP_MASKED_EQ", u32::MAX, value),
        ArgumentComparison::Below(value) => ("SCMP_CMP_LT", value, 0),
        ArgumentComparison::Above(value) => ("SCMP_CMP_GT", value, 0),
    };
    json!({ "index": index, "op": op, "value": value, "valueTwo": value_two })
}
