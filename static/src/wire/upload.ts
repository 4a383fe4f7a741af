// Upload of a file into a session's workspace. XMLHttpRequest reports progress; `fetch` does not.

import { errorFrom, fileAddress, RestError } from "./rest";
import { secretHeaders } from "./secret";

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
    const { status, text } = await putFile(session, path, file, onProgress, signal);
    if (status === 201) return path;
    if (status !== 412) throw errorFrom(status, text);
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

function putFile(session: string, path: string, file: File, onProgress: (share: number) => void, signal: AbortSignal) {
  return new Promise<{ status: number; text: string }>((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("PUT", fileAddress(session, path)!);
    request.setRequestHeader("Content-Type", "application/octet-stream");
    request.setRequestHeader("If-None-Match", "*");
    for (const [name, value] of Object.entries(secretHeaders())) request.setRequestHeader(name, value);
    request.upload.onprogress = ({ loaded, total }) => onProgress(total > 0 ? loaded / total : 0);
    request.onload = () => resolve({ status: request.status, text: request.responseText });
    request.onerror = () => reject(new RestError(0, "no reply from the server; check that greenroom runs"));
    request.onabort = () => reject(new RestError(0, "cancelled"));
    signal.addEventListener("abort", () => request.abort());
    request.send(file);
  });
}
