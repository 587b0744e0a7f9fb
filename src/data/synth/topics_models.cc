// Topics about models: what layers are and do.
#include "data/synth/topics.h"

namespace braid::synth {
namespace {

constexpr Topic kModelTopics[] = {
    {"the models", "Braid reads Nemotron-H, Nemotron 3, Llama-Nemotron, Llama and Qwen3 models.",
     "the models that Braid supports|supported models|the model families of Braid|model families|Llama and Qwen|"
     "compatible models|LLMs that Braid can run|the architectures that Braid reads",
     "Which models does Braid support|What models can Braid run|Does Braid run Llama|Can Braid load Qwen|Which model "
     "families does Braid know|Does Braid support Nemotron|Which models work with Braid|What models can I use with "
     "Braid|Can I load a Llama model|List the models Braid can run|Name the model families that Braid supports|Will my "
     "Llama model run in Braid|Is Qwen supported by Braid|Are Nemotron models supported in Braid|What models can Braid "
     "read|Can I load Qwen3 in Braid|List the supported model families|supported models|Tell me which models work with "
     "Braid|Is Nemotron-H among the models Braid can load|I'd like to know which model families Braid reads|Models for "
     "Braid, which ones are there|Name the models that I can run with Braid|Will Braid open a Qwen or Llama model|"
     "If I download a Llama model, can Braid read it|Are Mistral or Gemma models supported|I need a list of compatible "
     "models|What kinds of language model can be loaded|Which LLMs are compatible|Does it take Mistral|gemma support|"
     "deepseek or gpt-oss|Can it run Llama 3|Which architectures can the engine load|What neural nets will it accept|"
     "Does it handle Qwen|Will it work with Phi or Falcon|Any chance of running Meta's models|compatible llms|model "
     "zoo|Which network families are supported|I have several LLMs and wonder which of them this engine accepts|Is "
     "Alibaba's Qwen3 understood|Are only hybrids supported, or plain Llama too|What other models besides Tiny are "
     "runnable|My team uses Llama-Nemotron, is it on your list|Which LLM may I download for use with Braid|Name some "
     "LLMs that would work|Is GPT-2 loadable|Tell me every architecture you can load|Models known to the program|Which "
     "pretrained networks get recognised|Which bigger LLM could I swap Tiny for|llama qwen nemotron|Does Mixtral load "
     "here"},
    {"the letter M", "M stands for a Mamba-2 layer.",
     "the letter M|the M in the pattern|the M layers|the symbol M|capital M|the M in MEM*E|M layers|M as a layer type",
     "What does M mean|What does the letter M stand for|What is an M layer|What does the M in a pattern mean|Which "
     "layer is written M|In a pattern, what is the M|The letter M in the pattern stands for what|M in a layer pattern "
     "means what|Which kind of layer is M|What does the letter M mean in a pattern|What does M stand for|Tell me the "
     "meaning of M in MEM*E|In a layer pattern, what is M|letter M meaning|Is M a Mamba layer in the pattern|Explain "
     "the M in the layer pattern|Which layer does the letter M denote|I'd like to know what M means in the pattern|"
     "The letter M, what is it for|If a pattern has an M, which layer is that|Define M as used in layer patterns|Does "
     "the M in MEM*E stand for Mamba or memory|Say which kind of layer is written as M|What layer is marked with an M|"
     "I see an M in the pattern, what is that|What's M|M stands for|What is the M for|Meaning of capital M in the "
     "layer string|What sort of block does M represent|M denotes which type of layer|Why is there an M in MEM*E|Decode "
     "the M for me|Could you clarify what the M is in a string such as MEM*E|How should the M in a layer pattern be "
     "read|m in pattern|M equals what|Is M short for Mamba-2|Does M mean memory, MLP or Mamba|My config has an M, what "
     "layer is it|Which block has M as its symbol|What gets abbreviated as M|Layer type M|That M in the pattern string "
     "puzzles me|What to make of an M in the layer list|pattern letter m|I keep seeing M in hybrid layer strings and "
     "would like to know what it refers to|Symbol M represents|Translate the M in MEM*E into words|Is M attention, "
     "experts or Mamba"},
    {"the star", "The star stands for an attention layer.",
     "the star in the pattern|the asterisk|the star layers|the star symbol|the * sign|the asterisk in MEM*E|the star "
     "layer|the star as a layer type",
     "What does the star mean|What does * mean|What does the star stand for|What is the star in a pattern|Which layer "
     "is written as a star|What does the asterisk mean|In a pattern, what is the star|The star in the pattern stands "
     "for what|Which kind of layer is the star|What layer does the asterisk stand for|What does the star mean in a "
     "pattern|Tell me the meaning of * in MEM*E|In a layer pattern, what is the asterisk|star symbol meaning|Is the "
     "star an attention layer|Explain the star in the layer pattern|Which layer does the asterisk denote|I'd like to "
     "know what the star means in the pattern|The star, what is it for|If a pattern has a star, which layer is that|"
     "Define the * as used in layer patterns|Does the star in MEM*E mean attention or something else|Say which kind of "
     "layer is written as a star|What layer is marked with an asterisk|I see a * in the pattern, what is that|What's "
     "the *|* stands for|What is the asterisk for|Why does MEM*E contain a star|What sort of block does the star "
     "represent|Decode the asterisk for me|asterisk in pattern|Is the star a wildcard or a real layer|Is * short for "
     "attention|Is the * in the pattern a multiplication sign|My config has a *, what layer is it|Which block has * as "
     "its symbol|Layer type *|That little star in the pattern string puzzles me|When the pattern says *, what kind of "
     "layer comes|pattern symbol *|What to make of an asterisk in the layer list|I keep seeing a star in hybrid layer "
     "strings and would like to know what it refers to|Translate the * in MEM*E into words|A star denotes which type "
     "of layer|Which part of the network hides behind the star|Could you clarify the asterisk in a string such as "
     "MEM*E|star meaning|Is the star attention, experts or Mamba|Between the letters sits a star; why|What does one "
     "call the layer drawn as *"},
    {"the letter E", "E stands for a layer of experts.",
     "the letter E|the E in the pattern|the E layers|the symbol E|capital E|the E in MEM*E|E layers|E as a layer type",
     "What does E mean|What does the letter E stand for|What is an E layer|What does the E in a pattern mean|Which "
     "layer is written E|In a pattern, what is the E|The letter E in the pattern stands for what|E in a layer pattern "
     "means what|Which kind of layer is E|What does the letter E mean in a pattern|What does E stand for|Tell me the "
     "meaning of E in MEM*E|In a layer pattern, what is E|letter E meaning|Is E an expert layer in the pattern|Explain "
     "the E in the layer pattern|Which layer does the letter E denote|I'd like to know what E means in the pattern|"
     "The letter E, what is it for|If a pattern has an E, which layer is that|Define E as used in layer patterns|Does "
     "the E in MEM*E stand for experts or embedding|Say which kind of layer is written as E|What layer is marked with "
     "an E|I see an E in the pattern, what is that|What's E|E stands for|What is the E for|Meaning of capital E in the "
     "layer string|What sort of block does E represent|E denotes which type of layer|Why is there an E in MEM*E|Decode "
     "the E for me|Could you clarify what the E is in a string such as MEM*E|How should the E in a layer pattern be "
     "read|e in pattern|E equals what|Is E short for experts|Does E mean encoder, embedding or experts|My config has "
     "an E, what layer is it|Which block has E as its symbol|What gets abbreviated as E|Layer type E|That E in the "
     "pattern string puzzles me|pattern letter e|I keep seeing E in hybrid layer strings and would like to know what "
     "it refers to|Symbol E represents|Translate the E in MEM*E into words|Is E attention, experts or Mamba|MEM*E ends "
     "in an E; which block is this"},
    {"the name", "Three strands are braided through every model: Mamba, attention and experts.",
     "the name Braid|the name of the project|the three strands|the origin of the name Braid|the word Braid|the naming "
     "of Braid|the meaning of the name",
     "Why is it called Braid|Where does the name Braid come from|What does the name Braid mean|Why the name Braid|"
     "Why is the project named Braid|What are the three strands|Which strands are braided|How did Braid get its name|"
     "What is the story behind the name Braid|Name the three strands of Braid|Explain the name of Braid|origin of the "
     "name braid|Tell me why they named it Braid|Is there a reason for the name Braid|The name Braid, where is it from|"
     "I'd like to know how Braid got its name|What are the three strands of Braid|Name the three strands that are "
     "braided|Does the word braid refer to hair|Give me the story behind the name|What exactly is braided in Braid|"
     "Which strands are woven together in the models|I am curious about the choice of the name Braid|How come it's "
     "named Braid|What made them call it Braid|Why did they pick the word Braid|What's with the name|What inspired the "
     "name|name origin|braid name meaning|three strands|What gave the software its name|Is the title a reference to "
     "plaited hair|What are the strands plaited together here|Why a name like that|Does Braid stand for something|"
     "Is BRAID an acronym|What does a plait have to do with language models|Which three things are twisted together in "
     "the models|What led the authors to name it Braid|Care to explain the name of this tool|I always wondered about "
     "the reason behind the name of this program|Etymology of the project name|Named after what|A braid has three "
     "strands; which ones are meant|In what sense are models braided|My friend asks why anyone would call software "
     "Braid|Were strands of hair the inspiration|Funny title, who or what is being braided"},
    {"hybrids", "A hybrid mixes Mamba layers with attention and expert layers.",
     "hybrids|hybrid models|a hybrid model|the hybrid architecture|hybrid networks|the mix of layers in a hybrid|"
     "hybrid language models|a hybrid network|hybrid LLMs",
     "What is a hybrid model|What is a hybrid|What makes a model a hybrid|Why is it called a hybrid|What does hybrid "
     "mean|How does a hybrid model look|What is inside a hybrid|When do you call a model a hybrid|Which layers are in "
     "a hybrid model|In short, what are hybrid models|Define a hybrid|What makes a language model a hybrid|Tell me "
     "what hybrid means here|Explain hybrid language models|hybrid model definition|Hybrids, what do they mix|I'd like "
     "to know what a hybrid is|Which layers are mixed in a hybrid|Is a hybrid a mix of several kinds of layer|How does "
     "a hybrid differ from a plain transformer|If a model is called hybrid, what does that mean|Describe the layers of "
     "a hybrid model|I don't understand the word hybrid|What is combined in a hybrid architecture|Does a hybrid "
     "combine Mamba with attention|What do people mean by a hybrid network|Pure transformer versus hybrid|Which "
     "ingredients go into a hybrid|When does a network count as hybrid|Is it the mix of layer types that makes it "
     "hybrid|Why do they call such networks hybrids|How are hybrids built|Hybrid as opposed to what|You said hybrid; "
     "could you elaborate|What does the word hybrid refer to here|Can you clarify the term hybrid for a beginner|Are "
     "hybrids part Mamba, part attention|What blends together in hybrid networks|What types of block does a hybrid "
     "contain|The composition of a hybrid|What sets hybrids apart from ordinary LLMs|Would you describe how a hybrid "
     "is put together|I keep reading about hybrid architectures without knowing what is being mixed|Do hybrids use "
     "attention at all|What is so hybrid about these models|Is hybrid a name for mixing architectures|Mixed-layer "
     "models, why are they called hybrid|A hybrid consists of which parts|hybrid nets|hybrid vs dense|Got a simple "
     "picture of hybrid nets"},
    {"Mamba", "Mamba-2 is a layer with a state that stays the same size, however long the text is.",
     "Mamba|Mamba-2|the Mamba layer|Mamba layers|state space models|the state of Mamba|Mamba blocks|an SSM|the Mamba "
     "state|a state space layer|Mamba-2 layers|the memory of Mamba",
     "What is Mamba|What is Mamba-2|How does Mamba work|What does a Mamba layer do|Why use Mamba|What is a state space "
     "model|What is special about Mamba|How large is the state of Mamba|Define Mamba|In short, what does Mamba do|"
     "Why is Mamba useful|Mamba layers: what do they do|Define Mamba-2|Explain what a Mamba layer does|Tell me about "
     "Mamba|How does Mamba-2 work|mamba explained|Does the state of Mamba grow with the text|I'd like to understand "
     "Mamba layers|Is Mamba a layer with a fixed state|Why is Mamba good for long text|Summarise the idea of Mamba-2|"
     "What is special about a Mamba layer|How large is the Mamba state on a long text|If the text gets longer, does "
     "the Mamba state get bigger|Give me a short description of Mamba|How does the Mamba block function|What's the "
     "trick behind Mamba|ssm meaning|mamba-2 layer|mamba basics|Does Mamba use constant memory|Why doesn't Mamba's "
     "memory grow|Could you shed light on Mamba for me|What's the advantage of state space layers|How much does Mamba "
     "hold after a million tokens|Mamba isn't a snake here, so what is it|Which layer keeps a state of constant size|"
     "What makes Mamba cheap on lengthy documents|What does a Mamba layer carry along|Is the Mamba state constant|"
     "How do SSM layers remember the past|Mamba in plain words|Fixed-size state layer|What happens to Mamba's state as "
     "the input grows|Selective state spaces, what are these|In layman's terms, what goes on inside a Mamba-2 block|"
     "A recurrent alternative to attention called Mamba, how does it behave|Do lengthy inputs blow up Mamba's memory|"
     "state space|My professor raves about Mamba, why"},
    {"attention", "Attention lets every token look back at all the tokens before it.",
     "attention|the attention layer|attention layers|self-attention|the attention mechanism|attention heads|attention "
     "in transformers|causal attention",
     "What is attention|How does attention work|What does an attention layer do|What is attention for|Why do models "
     "need attention|What is self-attention|What does attention look at|Define attention|In short, what does attention "
     "do|Attention layers: what do they do|Why is attention useful in a model|Explain what an attention layer does|"
     "Tell me about the attention mechanism|attention explained|Does attention look at earlier tokens|I'd like to "
     "understand attention|Is attention a way to look back at the text|What is self-attention in a model|Summarise the "
     "idea of attention|Which tokens can attention see|Why do models use attention|Give me a short description of "
     "attention|If a token uses attention, what does it look at|How do tokens attend to each other|What's the idea "
     "behind attention|attention mechanism|self-attention basics|What purpose does attention serve in transformers|"
     "Which words does attention consult|Can attention see future tokens|Does a token look back with attention|Could "
     "you spell out how attention operates|What does it mean to attend to a token|How far back can attention reach|"
     "I have trouble grasping attention|What job is done by the attention blocks|Causal attention in simple words|"
     "How does a model consult the previous words|Do all previous tokens matter to attention|What goes on in an "
     "attention head|For what reason do networks contain attention|Attention for dummies|My lecturer mentioned "
     "attention heads, what do they look at|Attention is all you need, they say; what is it|Would you tell a beginner "
     "how the attention layer treats the text before it|How does one token get information from preceding ones|"
     "attention heads|looking back at tokens"},
    {"experts", "A mixture of experts sends each token to a few small networks out of many.",
     "experts|a mixture of experts|the expert layer|MoE|expert layers|the experts in a model|sparse experts|MoE "
     "layers|mixture-of-experts models|expert networks",
     "What is a mixture of experts|What is an expert|What do the experts do|What does MoE mean|How do experts work|"
     "What is an MoE|Why use experts|What is an expert layer|Define a mixture of experts|What is meant by MoE|Define "
     "mixture of experts|Explain what experts are in a model|Experts in a model, what are they|Tell me about expert "
     "layers|How does a mixture of experts work|moe explained|Does each token use all the experts|I'd like to "
     "understand the mixture of experts|Is MoE short for mixture of experts|What does an expert layer do|Summarise the "
     "idea of MoE|How many experts does one token go to|Why do models have many experts|Give me a short description of "
     "a mixture of experts|If a layer has experts, how are they used|What's MoE|moe meaning|mixture of experts basics|"
     "Are experts small networks|Why not use every expert for each word|In neural networks, who are these experts|"
     "Experts, in plain English|Why split a layer into experts|The acronym MoE, please|How is a token spread over "
     "experts|What kind of network is one expert|MoE for beginners|Could you describe the concept of expert networks|"
     "Do tokens visit all experts or just a couple|Which idea lies behind sparse MoE layers|What do you mean when you "
     "speak of experts|What makes mixtures of experts efficient|A layer made of experts does what|Are only a few "
     "experts active at once|Not human experts, the ones inside the model, what are they|I hear modern LLMs contain "
     "dozens of experts, how does that work|Dense layer versus experts|Subnetworks known as experts|My boss asked what "
     "MoE models do|sparse moe"},
    {"the router", "The router picks the experts that each token visits.",
     "the router|routing|the routing of tokens|the gate of an MoE|the choice of experts|the routing layer|gating",
     "What does the router do|What is the router|How are experts chosen|Who picks the experts|What is routing|How does "
     "the router work|What is a router for|How does a token find its experts|Define the router|In short, what does a "
     "router do|Which part chooses the experts for a token|Define the router in a mixture of experts|Explain the job "
     "of the router|Tell me about routing|router role|Who decides which experts a token visits|How are the experts "
     "chosen for a token|Is it the router that selects experts|Routing of tokens, how does it work|I'd like to know "
     "what a router is for|Does a router send tokens to experts|Which part picks the experts|If there are many "
     "experts, what chooses among them|Describe the router of an expert layer|I need an explanation of the router|"
     "Who chooses among the experts|moe gating|expert selection|routing meaning|How is it settled which expert gets a "
     "token|What mechanism assigns tokens to experts|Where is it decided which experts run|What task does the router "
     "have|By what are experts selected|Which component directs tokens to their experts|Tokens get dispatched to "
     "experts by what|Is a gate used to select experts|What function does a router serve in MoE models|Who decides "
     "where each token is sent|Not a Wi-Fi router, the one in the model, what is it|What does routing mean in a "
     "mixture of experts|The router's duty|What are routers in these networks|How do tokens end up at the right expert|"
     "Something has to select the experts, what is it|Router in neural nets|What is responsible for picking experts|"
     "Could you explain expert routing to me|Does the router pick experts per token|Which part acts as a traffic cop "
     "for tokens|top-k routing"},
    {"latent experts", "Latent experts work in a narrower space, so that more of them cost the same.",
     "latent experts|the latent space of experts|LatentMoE|experts in a latent space|latent mixture of experts|narrow "
     "experts|the width of latent experts",
     "What are latent experts|What is a latent expert|Why are experts latent|What does latent mean|How do latent "
     "experts work|What is the latent width for|Define latent experts|In short, what are latent experts|Explain latent "
     "experts to me|Tell me about latent MoE|Latent experts, how do they work|latent moe meaning|Why are latent "
     "experts used|Do latent experts cost less than ordinary ones|I'd like to know what latent experts are|What is a "
     "latent mixture of experts|Is a latent expert narrower than a normal expert|How do latent experts save cost|What "
     "does latent mean for experts|Summarise the benefit of latent experts|If experts are latent, what changes|"
     "Describe the narrower space of latent experts|What's latent about the experts|latent vs normal experts|Why "
     "shrink the space that experts work in|How come latent experts are cheaper|What is gained by making experts "
     "latent|Experts in a compressed space, how do these work|Explain the adjective latent in latent experts|How do "
     "latent experts differ from regular ones|Does a smaller width allow more experts|How can there be more experts at "
     "equal cost|LatentMoE in plain words|I can't make sense of the term latent experts|What is the benefit of the "
     "latent variety of experts|Are latent experts smaller|Do latent ones give more experts for the same price|The "
     "idea of latent experts|The trick of latent expert layers|Which space do latent experts live in|Low-dimensional "
     "experts, why|What does going latent buy an expert layer|Latent MoE versus ordinary MoE|Why would a designer "
     "choose latent experts over standard ones|Are tokens projected down for latent experts|Narrow experts, what's "
     "their advantage|Reduced-width experts"},
    {"multi-token prediction", "Multi-token prediction is an extra head that guesses the token after the next one.",
     "multi-token prediction|the MTP head|MTP|predicting several tokens|the extra prediction head|multi-token heads|"
     "the MTP layer|guessing two tokens ahead",
     "What is multi-token prediction|What does MTP mean|What is the MTP head|What is MTP for|What does the MTP head do|"
     "Why predict more than one token|Define multi-token prediction|In short, what does the MTP head do|MTP: what is "
     "it|Explain MTP|What does MTP stand for and do|Tell me about multi-token prediction|mtp head meaning|Does a model "
     "predict more than one token at a time|I'd like to understand multi-token prediction|What is the extra head of a "
     "model for|Multi-token prediction, how does it work|Can a head guess the token after the next one|Is MTP an extra "
     "head|How does a model guess two tokens ahead|Summarise multi-token prediction|If a model has an MTP head, what "
     "does it predict|Give me a short description of the MTP head|What's MTP short for|mtp|mtp explained|multi token "
     "prediction basics|How can a network foresee two tokens|What extra thing does the MTP head forecast|Which head "
     "looks beyond the next token|Can models guess further ahead than one token|What does multi-token prediction add|"
     "Why would one add a head for a later token|Predicting more than the very next word|Is multi-token prediction "
     "like looking two steps ahead|I noticed a component named MTP, what's its role|What purpose has the additional "
     "prediction head|The head that guesses a token early, what is it|Guessing two tokens at once|Explain the acronym "
     "MTP|How do several tokens get predicted in one go|MTP in simple terms|What do multi-token heads do|Besides the "
     "next token, what else can be predicted|Does the second head predict the token after next|What comes out of the "
     "MTP module|Looking ahead by more than one token|Extra output head|My paper mentions MTP without explaining it, "
     "could you"},
};

}  // namespace

std::span<const Topic> model_topics() { return kModelTopics; }

}  // namespace braid::synth
