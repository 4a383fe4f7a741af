// Requests whose body or answer is not JSON, in two forms: `fetch`, and `XMLHttpRequest` for the
// progress of an upload.

import { errorFrom, RestError, signedOut } from "./rest";
import { secretHeaders } from "./secret";

interface RawRequest {
  method: "GET" | "PUT" | "DELETE";
  headers?: Record<string, string>;
  body?: BodyInit;
  signal?: AbortSignal | undefined;
}

/**
 * Sends a request to an address of this server.
 *
 * Throws a `RestError` for an error answer and for a missing answer.
 */
export async function rawCall(address: string, request: RawRequest): Promise<Response> {
  const headers = { ...secretHeaders(), ...request.headers };
  const signal = request.signal ?? null;
  const response = await fetch(address, { ...request, headers, signal, credentials: "same-origin", cache: "no-store" }).catch(() => {
    throw new RestError(0, request.signal?.aborted ? "cancelled" : "no reply from the server; check that greenroom runs");
  });
  if (response.status === 401) signedOut.value = true;
  if (!response.ok) throw errorFrom(response.status, await response.text().catch(() => ""));
  return response;
}

interface FileUploadRequest {
  headers: Record<string, string>;
  /** Share that was sent, from 0 to 1. */
  onProgress: (share: number) => void;
  signal: AbortSignal;
}

/** Sends a file to an address of this server. Throws a `RestError`. */
export function rawUpload(address: string, file: Blob, { headers, onProgress, signal }: FileUploadRequest): Promise<void> {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("PUT", address);
    for (const [name, value] of Object.entries({ ...secretHeaders(), ...headers })) request.setRequestHeader(name, value);
    request.upload.onprogress = ({ loaded, total }) => onProgress(total > 0 ? loaded / total : 0);
    request.onload = () => (request.status < 300 ? resolve() : reject(errorFrom(request.status, request.responseText)));
    request.onerror = () => reject(new RestError(0, "no reply from the server; check that greenroom runs"));
    request.onabort = () => reject(new RestError(0, "cancelled"));
    signal.addEventListener("abort", () => request.abort());
    request.send(file);
  });
}
