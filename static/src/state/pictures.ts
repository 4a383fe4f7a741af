// Pictures among the files of a message.

import { loadOptions, options } from "./serverOptions";

/** Formats that every browser shows and the server sends as pictures. */
const PICTURE_NAME = /\.(png|jpe?g|gif|webp)$/i;

export function isPicture(name: string): boolean {
  return PICTURE_NAME.test(name);
}

/** Reports if a model accepts pictures. `undefined`: unknown, until the options are loaded. */
export function takesPictures(model: string | null | undefined): boolean | undefined {
  const { models, defaults } = options.value ?? {};
  const name = model ?? defaults?.model;
  return models?.find((offered) => offered.name === name)?.takes_images;
}

/** Returns the note for a model that takes no pictures. */
export function pictureNote(model: string | null | undefined, names: readonly string[]): string | null {
  if (takesPictures(model) !== false || !names.some(isPicture)) return null;
  return `${model ?? options.value?.defaults.model} takes no pictures. The agent gets the file.`;
}

/** Reports if pictures for this model are made smaller. Another model gets the file as it is. */
export async function needsSmallPictures(model: string | null | undefined): Promise<boolean> {
  await loadOptions();
  return takesPictures(model) !== false;
}
