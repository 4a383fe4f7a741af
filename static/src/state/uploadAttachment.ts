// Upload of a file for a message. A picture is made smaller first if the model takes pictures.

import { shrinkPicture } from "../dom/shrinkPicture";
import { uploadFile } from "../wire/upload";
import { needsSmallPictures } from "./pictures";

/** Uploads a file and returns its path in the workspace. */
export async function uploadAttachment(
  session: string,
  file: File,
  model: string | null | undefined,
  onProgress: (share: number) => void,
  signal: AbortSignal,
): Promise<string> {
  const isForModel = file.type.startsWith("image/") && (await needsSmallPictures(model));
  return uploadFile(session, isForModel ? await shrinkPicture(file) : file, onProgress, signal);
}
