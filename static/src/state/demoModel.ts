// What a model's name says.

/** Whether it is the scripted model that needs no key. It must never pass for a real one. */
export function isDemo(model: string): boolean {
  return model === "demo" || model.startsWith("demo/") || model.startsWith("demo-");
}

/** What a demo is, for those who have not seen one. */
export const NOBODY_THINKS = "It plays a script, nobody thinks";
