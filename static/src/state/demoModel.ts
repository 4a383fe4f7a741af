// Detection of the demo model.

/** Detects the scripted model, which needs no key. The UI must always mark it as scripted. */
export function isDemo(model: string): boolean {
  return model === "demo" || model.startsWith("demo/") || model.startsWith("demo-");
}

/** Explanation of the demo model. */
export const DEMO_NOTE = "Plays a script, no real model";
