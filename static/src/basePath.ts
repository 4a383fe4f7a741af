// Base path of the page, such as `/greenroom` behind a proxy. The server writes it into the page,
// because the content security policy allows no `<base>`.

import { options } from "preact";

/** Base path without a final slash. Empty: the root, or code that runs outside of a page. */
export const basePath = globalThis.document?.querySelector<HTMLMetaElement>("meta[name=greenroom-base]")?.content ?? "";

/** Returns an address of this server with the base path. An address that has it stays as it is. */
export const serverAddress = (path: string): string => withBase(basePath, path);

/** Returns the path of the current page without the base path. */
export const currentPath = (): string => withoutBase(basePath, location.pathname);

export const withBase = (base: string, path: string): string => (isBelow(base, path) ? path : base + path);

export const withoutBase = (base: string, path: string): string => (isBelow(base, path) ? path.slice(base.length) || "/" : path);

const isBelow = (base: string, path: string): boolean => path === base || path.startsWith(`${base}/`);

/** Attributes of elements that hold an address of this server. */
const ADDRESS_ATTRIBUTES = ["href", "src"] as const;

if (basePath !== "") {
  // Links and pictures of all components get the base path here, so each component names plain
  // addresses.
  const next = options.vnode;
  options.vnode = (vnode) => {
    if (typeof vnode.type === "string") addBase(vnode.props as Record<string, unknown>);
    next?.(vnode);
  };
}

function addBase(props: Record<string, unknown>): void {
  for (const name of ADDRESS_ATTRIBUTES) {
    const address = props[name];
    if (typeof address === "string" && /^\/(?!\/)/.test(address)) props[name] = serverAddress(address);
  }
}
