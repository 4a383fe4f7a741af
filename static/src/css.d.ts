// Style sheet of a package, as a text.
declare module "*.css" {
  const css: string;
  export default css;
}
