// Names that a person types for a new or moved entry.

/** Returns the reason against a typed path, or "". The server checks the rest. */
export function pathProblem(path: string): string {
  const parts = path.split("/");
  if (parts.some((part) => part === "")) return path === "" ? "" : "Write the path without `//` and without `/` at its ends.";
  // A browser resolves dots in an address.
  if (parts.some((part) => part === "." || part === "..")) return "Write the path without `.` and `..`.";
  return "";
}
