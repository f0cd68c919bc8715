/** The part of lowlight that is used: a module of its own, so that bundlers leave out the rest. */

export { common, createLowlight } from 'lowlight';
