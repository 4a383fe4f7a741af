// Language of a file for the code colours, by its name.

/** Languages whose extension is not already a name that the highlighter takes. */
const BY_EXTENSION: Record<string, string> = {
  cc: "cpp", cfg: "ini", conf: "ini", h: "c", hpp: "cpp", htm: "xml", html: "xml", mjs: "javascript", cjs: "javascript",
  patch: "diff", pyi: "python", svg: "xml", toml: "ini", tsx: "typescript", jsx: "javascript", zsh: "bash",
};

const BY_NAME: Record<string, string> = { Dockerfile: "dockerfile", Containerfile: "dockerfile", ".bashrc": "bash", ".profile": "bash" };

/** Returns a language that the highlighter may have. */
export function languageOfFile(path: string): string {
  const name = path.slice(path.lastIndexOf("/") + 1);
  if (Object.hasOwn(BY_NAME, name)) return BY_NAME[name]!;
  const extension = name.slice(name.lastIndexOf(".") + 1).toLowerCase();
  return Object.hasOwn(BY_EXTENSION, extension) ? BY_EXTENSION[extension]! : extension;
}
