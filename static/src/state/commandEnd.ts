// End of a command in words: exit code, signal, or timeout.

/** Returns the end, or `null` if the command was stopped from outside. */
export function commandEnd(extras: Readonly<Record<string, unknown>>): string | null {
  const { exit_code: code, signal, timed_out } = extras;
  if (timed_out === true) return "timed out";
  if (typeof code !== "number") return null;
  return typeof signal === "string" ? `${signal}, exit ${code}` : `exit ${code}`;
}
