// Every limit of the host, by name. Each is tested at the limit and one past it; the number's
// reason stands beside it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bloomery::limits {

// Model files.
inline constexpr uint64_t kMetadataBytesMax =
    512ull << 20;  // the largest public vocabularies take about 40 MiB
inline constexpr uint64_t kMetadataKeyBytesMax = 65535;  // the GGUF description's own limit
inline constexpr uint64_t kTensorNameBytesMax = 256;  // writers keep to 64; some tools go past it
inline constexpr uint64_t kModelShardsMax = 1024;     // public sets have up to about 200 files
inline constexpr size_t kSafetensorsNodesMax =
    16u << 20;  // a tensor's entry has about a dozen: over a million tensors
inline constexpr uint64_t kFolderTensorsMax = 1u << 20;  // about what the values above can tell of
inline constexpr uint64_t kCheckedTensorBytesMax =
    16u << 20;  // F32 tensors up to this are checked for NaN at load: the largest routers take 10
inline constexpr int kLoadReadsMax = 16;  // in flight: where NVMe drives reach their best rate
inline constexpr uint64_t kLoadReadBytes =
    2ull << 20;  // of one read: one huge page, so that no two threads wait for one to be cleared

// Plugins.
inline constexpr size_t kManifestBytesMax = 64u << 10;
inline constexpr size_t kPluginArchitecturesMax = 64;
inline constexpr size_t kPluginTextBytesMax = 256;  // names, patterns and keys of a plugin
inline constexpr size_t kPluginFolderEntriesMax = 1024;
inline constexpr uint32_t kPluginStopsMax =
    32;  // stop texts and ids each; families name up to five
inline constexpr uint64_t kPluginHostBytesMax = 256ull
                                                << 20;  // what one instance may take from the host
inline constexpr uint64_t kPluginReadBytesMax = 1u << 20;  // one read_small call (sdk model.h)
inline constexpr uint64_t kPluginReadBytesSeatMax = 16u << 20;
inline constexpr uint32_t kSeatLayersMax = 4096;
inline constexpr uint32_t kSeatItemsMax = 1u
                                          << 20;  // weights, banks, planes … of a description, each
inline constexpr uint32_t kBankExpertsMax =
    65536;  // of one bank; public models have up to 512, and a router row stays 256 KiB
inline constexpr uint32_t kOperatorPortsMax = 64;  // on either side; our own have up to eight
inline constexpr int32_t kExpansionDepthMax = 8;   // operators that expand into operators
inline constexpr uint64_t kElfBytesMax = 1ull
                                         << 30;   // CUDA code makes plugins large, not this large
inline constexpr uint16_t kElfSegmentsMax = 256;  // a plugin has about ten
inline constexpr uint64_t kWorkspaceBytesMax =
    4ull << 30;  // of one step of a plugin's operator: 256 KiB for each row of the largest pass

// Seats.
inline constexpr int32_t kSlotContextMax =
    1 << 20;  // the rope kernel's angles are good to this position (kernels-common/rope/rope.h)
inline constexpr int32_t kSlotsMax = 64;      // as many requests may wait; the planes grow with it
inline constexpr int32_t kWindowRowsMax = 8;  // of a slot in one pass, drafts counted: states take
                                              // a lane each, and longer drafts are rare
inline constexpr size_t kBestLogits = 64;     // of a row, that a card hands over: top-k 40 and room
inline constexpr int32_t kCardLogitRowsMax = 512;  // of one pass: 311 MB of a vocabulary of 152,064
inline constexpr size_t kExpertMovesMax = 64;      // under way to a card: more than a pass hides
inline constexpr uint64_t kRoutingTraceBytesMax =
    uint64_t{4} << 30;  // twelve million rows of 48 banks of 128 experts, 8 picked
inline constexpr int32_t kUbatchRowsMax = 16384;   // beyond it no kernel gains, and buffers grow
inline constexpr int32_t kBatchRowsMax = 1 << 20;  // a whole prompt of the longest context
inline constexpr int32_t kThreadsMax = 512;        // cores of the largest machines of two sockets

// Templates (docs/serving.md): a hostile template ends with an error, not with the process.
inline constexpr uint64_t kJinjaStepsMax = 1'000'000;
inline constexpr int kJinjaDepthMax = 64;
inline constexpr size_t kJinjaOutputBytesMax = 16u << 20;
inline constexpr size_t kJinjaSourceBytesMax =
    1u << 20;  // the longest public chat template takes about 30 KiB
inline constexpr size_t kJinjaValueBytesMax =
    256u << 20;  // alive at once in one render: a few copies of a full body
inline constexpr size_t kJinjaWorkBytesPerStep =
    1024;  // copying costs steps, so doubling loops end too
inline constexpr int kJinjaValueDepthMax =
    128;  // above kJsonDepthMax, with room for what a template wraps around
inline constexpr int kJinjaEvalDepthMax =
    1024;  // nodes under evaluation over all nested macro calls: about 1 MiB of stack
inline constexpr size_t kJinjaRangeMax = 100'000;  // jinja2's own sandbox limit

// Tool calls.
inline constexpr size_t kToolCallHeadBytesMax =
    64u << 10;  // of markup held back before it is known to be a call: names and JSON before them

inline constexpr size_t kCallMemoryBytesMax =
    16u
    << 20;  // arguments of earlier calls, kept as the model wrote them: long conversations of a day
inline constexpr size_t kCallMemoryCallsMax = 1u << 16;

// Text.
inline constexpr size_t kTokeniseBytesMax =
    256u << 20;  // four full bodies: a template may repeat what a request brought
inline constexpr size_t kWordBytesMax =
    1u << 20;  // longest piece merged as a whole (24 bytes of scratch a byte); a longer one is cut
inline constexpr size_t kSpecialTokenBytesMax =
    4096;  // of a control or user-defined token, which is compared at every place of a text
inline constexpr size_t kStopStringsMax = 256;
inline constexpr size_t kStopStringBytesMax = 4096;
inline constexpr size_t kSamplersMax = 64;         // entries of `samplers`, repeats included
inline constexpr size_t kDryBreakersMax = 64;      // each costs one look at the whole vocabulary
inline constexpr size_t kDryBreakerBytesMax = 40;  // longer strings are cut, as llama-server does
inline constexpr size_t kDryBreakerTailMax = 20;   // tokens of a breaker after its first

// Grammars (docs/serving.md): a hostile one ends with an error, not with the process.
inline constexpr size_t kGrammarSourceBytesMax =
    1u << 20;                                // a hundred tools with large schemas make some 200 KiB
inline constexpr int kGrammarDepthMax = 64;  // groups in each other
inline constexpr uint32_t kGrammarRepeatMax = 100'000;  // of one {m,n}
inline constexpr size_t kGrammarNodesMax =
    1u << 18;  // parts of the source, and of the automaton once repetitions are written out
inline constexpr size_t kGrammarThreadsMax =
    4096;  // ways to go on at one place: JSON has below 40, a repetition of optionals as many
inline constexpr uint64_t kGrammarStepsMax =
    4'000'000;  // of one token or one mask: about 0.1 s; JSON takes some thousand
inline constexpr size_t kGrammarTablesBytesMax =
    16u << 20;  // places and masks a grammar keeps before it begins anew
inline constexpr size_t kGrammarsKeptMax = 16;  // compiled grammars that later requests find again
inline constexpr size_t kGrammarTriggersMax = 64;
inline constexpr size_t kPreservedTokensMax = 256;
inline constexpr size_t kGrammarTriggerBytesMax = 4096;
inline constexpr size_t kGrammarTriggerWindowBytes =
    16u << 10;                                         // of output that patterns are looked for in
inline constexpr uint64_t kSchemaBytesMax = 4u << 20;  // descriptions count here, not in grammars
inline constexpr size_t kSchemaMergedBytesMax =
    64u << 20;  // of copies that allOf and what stands beside anyOf make
inline constexpr int kSchemaDepthMax = 64;  // schemas in each other: as deep as JSON bodies
inline constexpr size_t kSchemaPatternBytesMax = 4096;
inline constexpr int kSchemaPatternDepthMax = 32;  // groups of a pattern in each other

// Engine.
inline constexpr size_t kEventsQueuedMax =
    64;  // of one generation, for a reader that is behind; then texts join (engine/generation.h)
inline constexpr int32_t kMixedRowsMin =
    16;  // of a pass with prompts that streams wait for, however slow: prompts must go on as well
inline constexpr int32_t kPromptRowsMin = 8;    // of them for prompts, however many streams
inline constexpr int32_t kMixedRowsFirst = 64;  // of such a pass while no pace is known
inline constexpr int32_t kDecodeGapMsMax = 60'000;
inline constexpr int kFailedPassesMax =
    8;  // in a row: then the device is at fault and not one request that its client repeats

// Saved states.
inline constexpr uint64_t kStateIdentityBytesMax =
    64u << 10;  // the planes of the largest models are named in some 20 KiB
inline constexpr uint64_t kStateWritesBytesMax =
    64u << 20;  // on their way to the disk at once: a request that must read waits no longer
inline constexpr int kStateWriteFailuresMax =
    4;  // in a row: then the disk is full or gone, and the cache writes no more
inline constexpr int kStateFlushSecondsMax = 5;  // at a stop, for what is not in the folder yet
inline constexpr size_t kSlotActionsMax = 64;    // that wait for their slot, as many as slots

// HTTP.
inline constexpr size_t kRequestHeadBytesMax = 64u << 10;
inline constexpr int kRequestHeadSecondsMax = 10;
inline constexpr size_t kRequestBodyBytesMax = 64u << 20;
inline constexpr int kRequestBodySecondsMax = 60;
inline constexpr int kConnectionsMax = 256;  // with a request that is being answered
inline constexpr size_t kWaitingConnectionsMax =
    4096;  // without one: idle, or still sending; some 80 KiB each at most
inline constexpr int kStalledReaderSecondsMax = 10;  // then it makes room where room is wanted
inline constexpr size_t kSmallBodyBytesMax =
    1u << 20;  // an eighth of the memory for bodies is kept for those up to this
inline constexpr size_t kRequestBodiesBytesMax = 512u << 20;  // over all connections: 8 full ones
inline constexpr size_t kUnsentBytesMax = 16u << 20;  // a client that lets more pile up is cut off
inline constexpr size_t kAnswerBytesMax =
    64u << 20;  // of one answer given as a whole: as much as a body; streams have no such limit
inline constexpr size_t kAnswersBytesMax = 512u << 20;  // unsent, over all connections
inline constexpr int64_t kAlternativesMax = 1000;       // n_probs: each is some 100 bytes a token
inline constexpr size_t kPromptsMax = 64;  // prompts of one request: as many as may wait
inline constexpr int kKeepAliveSecondsMax = 30;
inline constexpr size_t kWatchReadBytes =
    4096;  // one read of the watch for a vanished client: pipelined requests
inline constexpr int kLingerMillisecondsMax =
    2000;  // a refused client gets this long to read its answer before the connection is cut
inline constexpr int kAcceptRetryMilliseconds =
    100;  // after an accept that failed (out of descriptors), so that the loop does not spin
inline constexpr int kHttpThreadsMax = 64;         // they wait for the engine; more gain nothing
inline constexpr int kDrainSecondsMax = 5;         // answers in progress get this long at a stop
inline constexpr int32_t kQueuedRequestsMax = 64;  // the default of --queue-depth
inline constexpr int32_t kQueueDepthMax = 4096;
inline constexpr int32_t kRetryAfterSecondsMax = 30;  // what a refused client is told at most
inline constexpr int kJsonDepthMax = 64;
inline constexpr size_t kJsonNodesMax =
    1u << 21;  // values and names: the longest context as ids, twice. A node takes 16 bytes, and
               // some 56 at the peak of parsing, so a document stays below 120 MiB and its texts

// Hub.
inline constexpr size_t kHubHeadBytesMax = 64u << 10;  // redirects to signed addresses take about 2
inline constexpr size_t kHubListingBytesMax = 64u
                                              << 20;  // of one page; a file takes some 300 bytes
inline constexpr int kHubPagesMax = 100;              // of one listing, 1000 files each
inline constexpr size_t kHubFilesMax = 100'000;
inline constexpr size_t kHubErrorBytesMax = 4096;  // of an error's body, for its message
inline constexpr int kHubRedirectsMax = 5;
inline constexpr int kHubConnectSecondsMax = 15;  // each address
inline constexpr int kHubSilenceSecondsMax = 30;  // a connection that brings nothing is given up
inline constexpr int kHubAttemptsMax = 5;         // in a row without a single byte; then the end
inline constexpr int kHubRetrySecondsMax = 60;    // what Retry-After may ask for
inline constexpr int kHubFilesAtOnce = 4;         // of one set: where one connection is the brake
inline constexpr int kHubProgressSeconds = 5;     // between lines of a log; a terminal sees more
inline constexpr size_t kHubNameBytesMax = 96;    // of an owner or a name; hubs keep to it
inline constexpr size_t kHubPathBytesMax = 1024;
inline constexpr size_t kHubTokenBytesMax = 512;

// Programs.
inline constexpr uint64_t kNamedFileBytesMax =
    4ull << 20;  // keys, templates and settings are small; what is larger is the wrong file
inline constexpr size_t kAnswerLineBytesMax =
    1u << 20;  // `bloomery chat --url`: an answer's head, or one event; no server sends more
inline constexpr int kConnectSecondsMax = 10;  // `bloomery chat --url`, each address
inline constexpr int kAnswerSecondsMax =
    3600;  // `bloomery chat --url`: silence; a long prompt is silent, so it is as --timeout

}  // namespace bloomery::limits
