#include "tvm/tvm_source.h"

#include <bit>
#include <cstring>

namespace mlcc::webgpu {
namespace {

static_assert(std::endian::native == std::endian::little, "TVM's files are little-endian");

// TVM's stream format: numbers as they are, a length of 8 bytes before strings and lists.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}

  template <typename T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
    return value;
  }
  std::string string() { return std::string(take(number<uint64_t>())); }

  template <typename Item>
  void list(Item item) {
    for (auto left = number<uint64_t>(); left > 0; --left) item();
  }

 private:
  std::string_view take(uint64_t bytes) {
    if (bytes > rest_.size()) throw Error(Fault::kKernel, "the library's WGSL module is damaged");
    const std::string_view taken = rest_.substr(0, bytes);
    rest_.remove_prefix(bytes);
    return taken;
  }

  std::string_view rest_;
};

KernelSignature::Kind argument_kind(DLDataType type, const std::string& kernel) {
  if (type.code == kDLOpaqueHandle) return KernelSignature::Kind::kBuffer;
  if (type.code == kDLFloat && type.bits == 32) return KernelSignature::Kind::kFloat;
  const bool is_int = type.code == kDLInt || type.code == kDLUInt || type.code == kDLBool;
  if (is_int && type.bits <= 32) return KernelSignature::Kind::kInt;
  throw Error(Fault::kKernel, "kernel " + kernel + ": no scalar argument of type code " +
                                  std::to_string(type.code) + " with " +
                                  std::to_string(type.bits) + " bits; cast it to 32 bits");
}

DLDataType read_type(Reader& reader) {
  DLDataType type;
  type.code = reader.number<uint8_t>();
  type.bits = reader.number<uint8_t>();
  type.lanes = reader.number<uint16_t>();
  return type;
}

// "paramWriteAccess:[0,0,1]": which buffers the kernel writes.
std::vector<bool> read_writes(std::string_view list) {
  std::vector<bool> writes;
  for (const char c : list) {
    if (c == '0' || c == '1') writes.push_back(c == '1');
  }
  return writes;
}

void read_tag(const std::string& tag, KernelSignature& signature) {
  constexpr std::string_view kBlock = "blockIdx.";
  constexpr std::string_view kThread = "threadIdx.";
  constexpr std::string_view kWrites = "paramWriteAccess:";
  if (tag.starts_with(kBlock)) {
    signature.axes.push_back(tag.back() - 'x');
  } else if (tag.starts_with(kThread)) {
    signature.axes.push_back(KernelSignature::kIgnoredAxis);
  } else if (tag.starts_with(kWrites)) {
    signature.source.writes = read_writes(std::string_view(tag).substr(kWrites.size()));
  } else {
    throw Error(Fault::kKernel, "kernel " + *signature.source.name + ": launch tag '" + tag +
                                    "' has no meaning on WebGPU");
  }
}

void check_signature(const KernelSignature& signature) {
  size_t buffers = 0;
  for (const auto kind : signature.arguments) {
    buffers += kind == KernelSignature::Kind::kBuffer ? 1 : 0;
  }
  if (signature.source.writes.size() != buffers) {
    throw Error(Fault::kKernel,
                "kernel " + *signature.source.name + ": the library's WGSL module is damaged");
  }
}

KernelSignature read_signature(Reader& reader, const std::string& name) {
  KernelSignature signature;
  signature.source.name = std::make_shared<const std::string>(name);
  reader.string();  // the name once more
  reader.list([&] { signature.arguments.push_back(argument_kind(read_type(reader), name)); });
  reader.list([&] { read_tag(reader.string(), signature); });
  reader.list([&] { reader.number<int32_t>(); });  // extra tags, which only CUDA has
  check_signature(signature);
  for (const auto kind : signature.arguments) {
    signature.source.scalars += kind == KernelSignature::Kind::kBuffer ? 0 : 1;
  }
  return signature;
}

}  // namespace

KernelTable read_kernels(std::string_view bytes) {
  Reader reader(bytes);
  KernelTable kernels;
  reader.list([&] {
    const std::string name = reader.string();
    kernels.emplace(name, read_signature(reader, name));
  });
  reader.list([&] {
    const std::string name = reader.string();
    const auto kernel = kernels.find(name);
    std::string wgsl = reader.string();
    if (kernel != kernels.end()) kernel->second.source.wgsl = std::move(wgsl);
  });
  return kernels;
}

}  // namespace mlcc::webgpu
