// What a model's name says.

/** Whether it is the scripted model that needs no key. It must never pass for a real one. */
export function isDemo(model: string): boolean {
  return model === "demo" || model.startsWith("demo/") || model.startsWith("demo-");
}
