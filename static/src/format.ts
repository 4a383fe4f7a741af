// Numbers and times as text.

export function relativeTime(at: string, now: number): string {
  const seconds = Math.max(0, (now - Date.parse(at)) / 1000);
  if (Number.isNaN(seconds)) return "";
  if (seconds < 60) return "now";
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h`;
  if (seconds < 7 * 86_400) return `${Math.floor(seconds / 86_400)} d`;
  return new Date(at).toLocaleDateString(undefined, { day: "numeric", month: "short" });
}

/** Formats a latency. */
export function latencyText(ms: number): string {
  if (ms < 1) return "< 1 ms";
  return ms < 1000 ? `${Math.round(ms)} ms` : duration(ms);
}

/** Formats a duration. Empty under a second: too short to tell the user anything. */
export function duration(ms: number): string {
  if (ms < 1000) return "";
  if (ms < 10_000) return `${(ms / 1000).toFixed(1)} s`;
  const seconds = Math.floor(ms / 1000);
  if (seconds < 60) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${seconds % 60} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** Formats whole seconds for a running clock. Empty in the first second. */
export function elapsed(ms: number): string {
  return duration(Math.floor(ms / 1000) * 1000).replace(/\.0 s$/, " s");
}

export function cost(usd: number | null | undefined): string {
  if (usd === null || usd === undefined) return "";
  if (usd === 0) return "$0";
  if (usd < 0.01) return "<$0.01";
  return `$${usd.toFixed(2)}`;
}

/** Cost of several calls, in USD. */
interface CallCosts {
  usd: number;
  isComplete: boolean;
  isEstimated: boolean;
}

/** Formats a cost, if any. Marks an estimate, and calls of unknown price. */
export function costSoFar({ usd, isComplete, isEstimated }: CallCosts): string {
  if (usd === 0) return isComplete ? "" : "price unknown";
  const known = isEstimated ? `about ${cost(usd)}` : cost(usd);
  return isComplete ? known : `${known} + price unknown`;
}

/** Returns the explanation of those marks. */
export function costNote({ isComplete, isEstimated }: CallCosts): string | undefined {
  const notes = [
    ...(isComplete ? [] : ["Some calls have no known price."]),
    ...(isEstimated ? ["Some calls reported no usage, so it is estimated."] : []),
  ];
  return notes.join(" ") || undefined;
}

export function tokens(count: number): string {
  if (count < 1000) return String(count);
  if (count < 999_500) return `${(count / 1000).toFixed(count < 9950 ? 1 : 0)}k`;
  return `${(count / 1_000_000).toFixed(1)}M`;
}

export function bytes(count: number): string {
  if (count < 1024) return `${count} B`;
  if (count < 1024 * 1024) return `${(count / 1024).toFixed(1)} KiB`;
  return `${(count / 1024 / 1024).toFixed(1)} MiB`;
}

export function plural(count: number, one: string, many = `${one}s`): string {
  return `${count.toLocaleString("en")} ${count === 1 ? one : many}`;
}

export function firstLine(text: string): string {
  return text.split("\n", 1)[0] ?? "";
}

/** Returns a name as the beginning of a sentence. */
export function capitalised(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
