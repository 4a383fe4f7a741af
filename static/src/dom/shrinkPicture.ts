// Scaling of pictures in the browser, before the upload. Models scale larger pictures themselves.

/** Longest side in pixels that models look at. */
const LONGEST_SIDE = 1568;
/** Size in bytes that a picture is packed into. The limit of providers is at 5 MB of base64. */
const ENOUGH_BYTES = 1_500_000;
const QUALITY = 0.85;

/** Types that models take. A browser can show some more. */
const MODEL_TYPES = ["image/png", "image/jpeg", "image/webp", "image/gif"];

/**
 * Returns a picture that a model takes. Returns the file itself if it is small enough, or if this
 * browser cannot read it as a picture.
 */
export async function shrinkPicture(file: File): Promise<File> {
  if (!file.type.startsWith("image/") || file.type === "image/svg+xml") return file;
  const picture = await createImageBitmap(file).catch(() => null);
  if (!picture) return file;
  try {
    const { width, height } = fittedSize(picture);
    const isSmall = width === picture.width && file.size <= ENOUGH_BYTES;
    if (isSmall && MODEL_TYPES.includes(file.type)) return file;
    const canvas = document.createElement("canvas");
    Object.assign(canvas, { width, height });
    canvas.getContext("2d")?.drawImage(picture, 0, 0, width, height);
    for (const type of typesFor(file.type)) {
      const packed = await pack(canvas, type);
      // A browser without the type packs a PNG.
      if (packed?.type === type && (packed.size <= ENOUGH_BYTES || type === "image/jpeg")) {
        return new File([packed], renamed(file.name, type), { type });
      }
    }
    return file;
  } finally {
    picture.close();
  }
}

/** Returns the size within the longest side, with the same shape. */
export function fittedSize({ width, height }: { width: number; height: number }): { width: number; height: number } {
  const scale = Math.min(1, LONGEST_SIDE / Math.max(width, height));
  return { width: Math.max(1, Math.round(width * scale)), height: Math.max(1, Math.round(height * scale)) };
}

/** Returns the types to try. A photo stays one; other pictures may need sharp edges and holes. */
export function typesFor(type: string): readonly string[] {
  return type === "image/jpeg" ? ["image/jpeg"] : ["image/png", "image/webp", "image/jpeg"];
}

/** Returns the name with the ending of the type. */
export function renamed(name: string, type: string): string {
  const ending = type === "image/jpeg" ? "jpg" : type.slice("image/".length);
  if (type === "image/jpeg" && /\.jpe?g$/i.test(name)) return name;
  const dot = name.lastIndexOf(".");
  return `${dot > 0 ? name.slice(0, dot) : name || "picture"}.${ending}`;
}

function pack(canvas: HTMLCanvasElement, type: string): Promise<Blob | null> {
  return new Promise((resolve) => canvas.toBlob(resolve, type, QUALITY));
}
