// Upload of an attachment into a session's workspace.

import { rawUpload } from "./rawCall";
import { fileAddress, RestError } from "./rest";

/** Directory in the workspace. */
const UPLOAD_DIRECTORY = "uploads";
/** Number of names to try when a name is taken. */
const MAX_NAMES = 50;

/** Uploads under an unused name and returns the path in the workspace. */
export async function uploadFile(session: string, file: File, onProgress: (share: number) => void, signal: AbortSignal): Promise<string> {
  for (let attempt = 1; attempt <= MAX_NAMES; attempt += 1) {
    // Cancelled while this code was loading, or between two names.
    if (signal.aborted) throw new RestError(0, "cancelled");
    const path = `${UPLOAD_DIRECTORY}/${uploadName(file.name, attempt)}`;
    const headers = { "Content-Type": "application/octet-stream", "If-None-Match": "*" };
    try {
      await rawUpload(fileAddress(session, path)!, file, { headers, onProgress, signal });
      return path;
    } catch (error) {
      if (!(error instanceof RestError && error.status === 412)) throw error;
    }
  }
  throw new RestError(412, `too many files are named \`${file.name}\`; rename it`);
}

/** Returns a name that any file system accepts. A second file of the name becomes `name-2.txt`. */
export function uploadName(name: string, attempt: number): string {
  const plain = name.replace(/[\x00-\x1f\x7f/\\:*?"<>|]+/g, "-").replace(/^[.\s-]+/, "").slice(-100) || "file";
  if (attempt === 1) return plain;
  const dot = plain.lastIndexOf(".");
  return dot > 0 ? `${plain.slice(0, dot)}-${attempt}${plain.slice(dot)}` : `${plain}-${attempt}`;
}
