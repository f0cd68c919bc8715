// A program that tests drive over standard input and output, like tests/e2e/mobile/host.cc.
await Relay().run()
