// Sends a file into a session's workspace. By XMLHttpRequest, which is the one that tells how far it has come.

import { refusal, RequestError } from "./rest";

/** Where uploads lie, in the workspace. */
const FOLDER = "uploads";
/** How many names are tried where one is taken. */
const NAMES = 50;

/** Uploads under a name that nothing has yet, and returns its path in the workspace. */
export async function uploadFile(session: string, file: File, onProgress: (share: number) => void, signal: AbortSignal): Promise<string> {
  for (let attempt = 1; attempt <= NAMES; attempt += 1) {
    // Taken back while this code was on its way, or between two names.
    if (signal.aborted) throw new RequestError(0, "taken back");
    const path = `${FOLDER}/${nameOf(file.name, attempt)}`;
    const { status, text } = await put(session, path, file, onProgress, signal);
    if (status === 201) return path;
    if (status !== 412) throw refusal(status, text);
  }
  throw new RequestError(412, `there are too many files called \`${file.name}\``);
}

/** A name that any file system takes; the second file of a name becomes `name-2.txt`. */
export function nameOf(name: string, attempt: number): string {
  const plain = name.replace(/[\x00-\x1f\x7f/\\:*?"<>|]+/g, "-").replace(/^[.\s-]+/, "").slice(-100) || "file";
  if (attempt === 1) return plain;
  const dot = plain.lastIndexOf(".");
  return dot > 0 ? `${plain.slice(0, dot)}-${attempt}${plain.slice(dot)}` : `${plain}-${attempt}`;
}

function put(session: string, path: string, file: File, onProgress: (share: number) => void, signal: AbortSignal) {
  return new Promise<{ status: number; text: string }>((resolve, reject) => {
    const request = new XMLHttpRequest();
    const address = path.split("/").map(encodeURIComponent).join("/");
    request.open("PUT", `/api/sessions/${encodeURIComponent(session)}/files/${address}`);
    request.setRequestHeader("Content-Type", "application/octet-stream");
    request.setRequestHeader("If-None-Match", "*");
    request.upload.onprogress = ({ loaded, total }) => onProgress(total > 0 ? loaded / total : 0);
    request.onload = () => resolve({ status: request.status, text: request.responseText });
    request.onerror = () => reject(new RequestError(0, "the server does not answer; is greenroom running?"));
    request.onabort = () => reject(new RequestError(0, "taken back"));
    signal.addEventListener("abort", () => request.abort());
    request.send(file);
  });
}
