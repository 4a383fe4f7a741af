// SVG imports resolve to the text of the file.

declare module "*.svg" {
  const text: string;
  export default text;
}
