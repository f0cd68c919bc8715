// The unigram model of SentencePiece: the segmentation with the best sum of scores (Viterbi).
#include <algorithm>
#include <array>
#include <limits>

#include "tokenizer/bytes.h"
#include "tokenizer/invalid.h"
#include "tokenizer/parts.h"
#include "tokenizer/utf8.h"

namespace mlcc::tokenizer {

namespace {

constexpr double kUnknownPenalty = 10;

class Unigram : public Model {
 public:
  explicit Unigram(Value json) {
    read(json["vocab"]);
    if (!json["unk_id"].null()) unknown_ = static_cast<int32_t>(json["unk_id"].index());
    if (unknown_ >= static_cast<int32_t>(scores_.size())) throw Invalid("the unknown token is not in the vocabulary");
    bool fallback = json.flag("byte_fallback", false);
    bytes_.fill(Vocabulary::kNone);
    for (size_t byte = 0; fallback && byte < 256; ++byte) bytes_[byte] = vocabulary.id(byte_token(byte));
  }

  void encode(std::string_view word, std::vector<int32_t>& ids) override {
    search(word);
    pieces_.clear();
    for (size_t end = word.size(); end > 0; end = nodes_[end].start) {
      size_t begin = nodes_[end].start;
      bool unknown = nodes_[end].id == unknown_;
      if (unknown && !pieces_.empty() && pieces_.back().unknown) {
        pieces_.back().begin = begin;  // unknown characters in a row are one
      } else {
        pieces_.push_back({begin, end, unknown});
      }
    }
    for (auto piece = pieces_.rbegin(); piece != pieces_.rend(); ++piece) {
      add(word.substr(piece->begin, piece->end - piece->begin), ids);
    }
  }

 private:
  struct Node {
    double score;
    size_t start;
    int32_t id;
    bool reached;
  };
  struct Piece {
    size_t begin, end;
    bool unknown;
  };

  void read(Value json) {
    size_t count = 0, bytes = 0;
    json.items([&](Value row) {
      row.items([&](Value part) { bytes += part.is_string() ? part.string().size() : 0; });
      ++count;
    });
    vocabulary.reserve(count, bytes);
    trie_.reserve(2 * count);
    json.items([&](Value row) {
      std::vector<Value> pair;
      row.items([&](Value part) { pair.push_back(part); });
      if (pair.size() != 2) throw Invalid("a piece of the vocabulary is no pair");
      add_piece(pair[0].string(), pair[1].number());
    });
  }

  void add_piece(std::string_view text, double score) {
    auto id = static_cast<uint32_t>(scores_.size());
    vocabulary.add(text, id);
    trie_.add(text, id);
    scores_.push_back(score);
    least_ = std::min(least_, score);
  }

  void search(std::string_view word) {
    nodes_.assign(word.size() + 1, {0, 0, 0, false});
    for (size_t at = 0; at < word.size();) {
      size_t length = length_of(word[at]);
      double here = nodes_[at].score;
      bool single = false;
      trie_.prefixes(word.substr(at), [&](size_t size, uint32_t id) {
        offer(at, at + size, scores_[id] + here, static_cast<int32_t>(id));
        single = single || size == length;
      });
      if (!single) {
        offer(at, at + length, least_ - kUnknownPenalty + here, unknown_);
        if (nodes_[at + length].id < 0) throw Invalid("the vocabulary has no unknown token");
      }
      at += length;
    }
  }

  void offer(size_t start, size_t end, double score, int32_t id) {
    Node& node = nodes_[end];
    if (!node.reached || score > node.score) node = {score, start, id, true};
  }

  void add(std::string_view piece, std::vector<int32_t>& ids) {
    int32_t id = vocabulary.id(piece);
    if (id >= 0) return ids.push_back(id);
    auto id_of = [&](char byte) { return bytes_[static_cast<unsigned char>(byte)]; };
    if (std::all_of(piece.begin(), piece.end(), [&](char byte) { return id_of(byte) >= 0; })) {
      for (char byte : piece) ids.push_back(id_of(byte));
    } else if (unknown_ < 0) {
      throw Invalid("the vocabulary has no unknown token");
    } else {
      ids.push_back(unknown_);
    }
  }

  Trie trie_;
  std::vector<double> scores_;
  double least_ = std::numeric_limits<double>::infinity();
  int32_t unknown_ = Vocabulary::kNone;
  std::array<int32_t, 256> bytes_;
  std::vector<Node> nodes_;
  std::vector<Piece> pieces_;
};

}  // namespace

std::unique_ptr<Model> make_unigram(Value json) { return std::make_unique<Unigram>(json); }

}  // namespace mlcc::tokenizer
