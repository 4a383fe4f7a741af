// Upload of a file for a message. A picture is made smaller first if the model takes pictures.

import { shrinkPicture } from "../dom/shrinkPicture";
import { uploadFile } from "../wire/upload";
import { needsSmallPictures } from "./pictures";

/** File as it stands in the workspace. */
export interface UploadedFile {
  path: string;
  /** Size in bytes, which is smaller for a scaled picture. */
  size: number;
}

/** Uploads a file, scaled if needed. */
export async function uploadAttachment(
  session: string,
  file: File,
  model: string | null | undefined,
  onProgress: (share: number) => void,
  signal: AbortSignal,
): Promise<UploadedFile> {
  const isForModel = file.type.startsWith("image/") && (await needsSmallPictures(model));
  const sent = isForModel ? await shrinkPicture(file) : file;
  return { path: await uploadFile(session, sent, onProgress, signal), size: sent.size };
}
