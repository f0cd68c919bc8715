# Homebrew's formula. `python3 dev.py release` writes it with the version, the place and the hashes of
# that release: dist/release/homebrew/mlcc.rb, for a tap.
class Mlcc < Formula
  desc "Compiler and engine for language models, with an OpenAI-compatible server"
  homepage "@URL@"
  version "@VERSION@"
  license "Apache-2.0"

  depends_on "python@3.13"

  on_macos do
    depends_on macos: :ventura
    on_arm do
      url "@URL@/@MACOS@", using: :nounzip
      sha256 "@MACOS_SHA256@"
    end
    on_intel do
      url "@URL@/@MACOS_INTEL@", using: :nounzip
      sha256 "@MACOS_INTEL_SHA256@"
    end
  end

  on_linux do
    on_intel do
      url "@URL@/@LINUX@", using: :nounzip
      sha256 "@LINUX_SHA256@"
    end
    on_arm do
      url "@URL@/@LINUX_ARM@", using: :nounzip
      sha256 "@LINUX_ARM_SHA256@"
    end
  end

  def install
    python = Formula["python@3.13"].opt_bin/"python3.13"
    system python, "-m", "venv", libexec
    system libexec/"bin/python", "-m", "pip", "install", "#{Dir["*.whl"].first}[serve,vulkan]"
    bin.install_symlink libexec/"bin/mlcc"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/mlcc --version")
  end
end
