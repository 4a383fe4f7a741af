// Loader of the emulator, which is a file of its own.

export type EmulatorFile = typeof import("./emulatorScreen");

let pending: Promise<EmulatorFile> | null = null;

/** Loads the emulator once. A failure is forgotten, so that a later call tries again. */
export function loadEmulator(): Promise<EmulatorFile> {
  pending ??= import("./emulatorScreen");
  pending.catch(() => (pending = null));
  return pending;
}
