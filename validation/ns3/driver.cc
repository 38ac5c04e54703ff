// Runs one case of the validation in ns-3.44 and prints what the flows and ports did.
//
// Input (standard input), one item a line:
//   transport newreno|dctcp     hosts N      rate BPS      link_delay_ns N   host_delay_ns N
//   racks N  spines N  spine_rate BPS        (of a leaf-spine; spines 0: one switch)
//   buffer BYTES  marking BYTES  rto_ns N  initial_window SEGMENTS  sack 0|1  delayed_acks 0|1
//   until_ns N   sample_from_ns N   sample_ns N
//   flow START_NS SOURCE DESTINATION BYTES
// Output: `flow INDEX FCT_NS RECEIVED_BYTES`, `port KIND FROM TO SENT MARKED DROPPED MEAN_QUEUE_BYTES`, `timeouts N`.
//
// What is made alike: a full packet has 1500 bytes on the wire and an acknowledgement 40 (no timestamps; rates are raised by the
// two bytes of PPP). A port's device holds one packet beside the one it sends, which the queue discipline does not see: buffer
// and threshold are one packet less. Connections are set up before their flow starts. A host's delay stands on its link.
#include <cstdint>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-module.h"

using namespace ns3;

namespace {

constexpr uint32_t kSegment = 1460;
constexpr uint32_t kPacket = 1500;
// A connection is set up so long before its flow starts.
const Time kSetUp = MilliSeconds(50);

struct FlowSpec {
  uint64_t startNs;
  uint32_t source, destination;
  uint64_t bytes;
};

struct PortSeen {
  std::string kind;
  uint32_t from, to;
  Ptr<QueueDisc> disc;
  Ptr<PointToPointNetDevice> device;
  uint64_t sent = 0, marked = 0;
  double queued = 0;
  uint64_t samples = 0;
};

std::map<std::string, double> numbers;
std::string transport = "newreno";
std::vector<FlowSpec> flows;
std::vector<std::unique_ptr<PortSeen>> ports;
uint64_t timeouts = 0;

// Which of several ways a flow takes, as the simulator draws it (the finalizer of SplitMix64).
uint32_t Spread(uint64_t number) {
  uint64_t mixed = number + 0x9e3779b97f4a7c15ull;
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9ull;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebull;
  return uint32_t(mixed ^ (mixed >> 31));
}

double Number(const std::string& key, double otherwise) {
  auto found = numbers.find(key);
  return found == numbers.end() ? otherwise : found->second;
}

void Sent(PortSeen* port, Ptr<const Packet>) { port->sent++; }

// ns-3 marks acknowledgements too, which DCTCP makes capable of it there. Those are not counted.
void Marked(PortSeen* port, Ptr<const QueueDiscItem> item, const char*) { port->marked += item->GetSize() > 100; }

// Every port has the same discipline, those of hosts too.
void Attach(NetDeviceContainer link, int side, const std::string& kind, uint32_t from, uint32_t to) {
  auto port = std::make_unique<PortSeen>();
  port->kind = kind;
  port->from = from;
  port->to = to;
  port->device = DynamicCast<PointToPointNetDevice>(link.Get(side));
  port->device->TraceConnectWithoutContext("PhyTxBegin", MakeBoundCallback(&Sent, port.get()));
  const uint32_t buffer = Number("buffer", 360000) - kPacket;
  TrafficControlHelper control;
  if (transport == "dctcp") {
    const double threshold = std::max(Number("marking", 97500) - kPacket, 1.0);
    control.SetRootQueueDisc("ns3::RedQueueDisc", "UseEcn", BooleanValue(true), "QW", DoubleValue(1.0), "Gentle",
                             BooleanValue(false), "MinTh", DoubleValue(threshold), "MaxTh", DoubleValue(threshold),
                             "UseHardDrop", BooleanValue(false), "MeanPktSize", UintegerValue(kPacket), "MaxSize",
                             QueueSizeValue(QueueSize(QueueSizeUnit::BYTES, buffer)));
  } else {
    control.SetRootQueueDisc("ns3::FifoQueueDisc", "MaxSize", QueueSizeValue(QueueSize(QueueSizeUnit::BYTES, buffer)));
  }
  NetDeviceContainer one;
  one.Add(port->device);
  port->disc = control.Install(one).Get(0);
  port->disc->TraceConnectWithoutContext("Mark", MakeBoundCallback(&Marked, port.get()));
  ports.push_back(std::move(port));
}

void Sample(Time every) {
  for (auto& port : ports) {
    uint32_t bytes = port->disc->GetNBytes();
    // What the device holds is not in the discipline.
    bytes += port->device->GetQueue()->GetNBytes();
    port->queued += bytes;
    port->samples++;
  }
  Simulator::Schedule(every, &Sample, every);
}

struct FlowRun {
  uint32_t index;
  FlowSpec spec;
  Ptr<Socket> sender, listener;
  uint64_t written = 0, received = 0;
};

std::vector<std::unique_ptr<FlowRun>> runs;

void Write(FlowRun* run) {
  while (run->written < run->spec.bytes) {
    const uint64_t left = run->spec.bytes - run->written;
    const uint32_t room = run->sender->GetTxAvailable();
    const uint32_t some = std::min<uint64_t>({left, room, uint64_t(kSegment) * 64});
    if (some == 0 || (some < kSegment && some < left)) return;
    const int written = run->sender->Send(Create<Packet>(some));
    if (written <= 0) return;
    run->written += written;
  }
}

void Writable(FlowRun* run, Ptr<Socket>, uint32_t) {
  if (Simulator::Now() >= NanoSeconds(run->spec.startNs)) Write(run);
}

void Received(FlowRun* run, Ptr<Socket> socket) {
  while (Ptr<Packet> packet = socket->Recv()) {
    run->received += packet->GetSize();
    if (packet->GetSize() == 0) break;
  }
  if (run->received == run->spec.bytes) {
    std::cout << "flow " << run->index << " " << (Simulator::Now() - NanoSeconds(run->spec.startNs)).GetNanoSeconds()
              << " " << run->received << "\n";
  }
}

void Accepted(FlowRun* run, Ptr<Socket> socket, const Address&) {
  socket->SetRecvCallback(MakeBoundCallback(&Received, run));
}

void CaState(TcpSocketState::TcpCongState_t, TcpSocketState::TcpCongState_t now) {
  timeouts += now == TcpSocketState::CA_LOSS;
}

void Begin(FlowRun* run) { Write(run); }

}  // namespace

int main() {
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream words(line);
    std::string key;
    words >> key;
    if (key == "flow") {
      FlowSpec flow{};
      words >> flow.startNs >> flow.source >> flow.destination >> flow.bytes;
      flows.push_back(flow);
    } else if (key == "transport") {
      words >> transport;
    } else if (!key.empty()) {
      words >> numbers[key];
    }
  }

  const bool dctcp = transport == "dctcp";
  Config::SetDefault("ns3::TcpL4Protocol::SocketType", StringValue(dctcp ? "ns3::TcpDctcp" : "ns3::TcpNewReno"));
  // Without selective acknowledgements there is no proportional rate reduction; and DCTCP's window falls at once, as RFC 8257
  // has it, where ns-3 would by default let it fall over a round trip, as Linux does.
  Config::SetDefault("ns3::TcpL4Protocol::RecoveryType",
                     StringValue(dctcp || Number("sack", 1) == 0 ? "ns3::TcpClassicRecovery" : "ns3::TcpPrrRecovery"));
  Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(kSegment));
  Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(Number("initial_window", 10)));
  Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(1u << 26));
  Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(1u << 29));
  Config::SetDefault("ns3::TcpSocket::DelAckCount", UintegerValue(Number("delayed_acks", 0) > 0 ? 2 : 1));
  Config::SetDefault("ns3::TcpSocket::DelAckTimeout", TimeValue(MicroSeconds(500)));
  Config::SetDefault("ns3::TcpSocketBase::MinRto", TimeValue(NanoSeconds(Number("rto_ns", 10e6))));
  Config::SetDefault("ns3::TcpSocketBase::ClockGranularity", TimeValue(NanoSeconds(1)));
  Config::SetDefault("ns3::TcpSocketBase::Timestamp", BooleanValue(false));
  Config::SetDefault("ns3::TcpSocketBase::Sack", BooleanValue(Number("sack", 1) > 0));
  Config::SetDefault("ns3::TcpSocketBase::WindowScaling", BooleanValue(true));
  Config::SetDefault("ns3::TcpSocketBase::UseEcn", StringValue(dctcp ? "On" : "Off"));
  Config::SetDefault("ns3::TcpDctcp::DctcpShiftG", DoubleValue(1.0 / 16));
  Config::SetDefault("ns3::DropTailQueue<Packet>::MaxSize", QueueSizeValue(QueueSize("1p")));

  const uint32_t hosts = Number("hosts", 2), spines = Number("spines", 0);
  const uint32_t racks = spines ? uint32_t(Number("racks", 1)) : 1, perRack = hosts / racks;
  NodeContainer nodes, leaves, tops;
  nodes.Create(hosts);
  leaves.Create(racks);
  tops.Create(spines);
  InternetStackHelper stack;
  Ipv4StaticRoutingHelper routing;
  stack.SetRoutingHelper(routing);
  stack.InstallAll();

  // A host has an address for each way that leads to it, and all of its packets go to its leaf.
  const uint32_t ways = std::max(spines, 1u);
  std::vector<std::vector<Ipv4Address>> addresses(hosts);
  const auto rate = [](double bits) { return DataRate(uint64_t(bits * (kPacket + 2) / kPacket)); };
  PointToPointHelper near, far;
  near.SetDeviceAttribute("DataRate", DataRateValue(rate(Number("rate", 1e9))));
  near.SetChannelAttribute("Delay",
                           TimeValue(NanoSeconds(Number("link_delay_ns", 1000) + Number("host_delay_ns", 0))));
  far.SetDeviceAttribute("DataRate", DataRateValue(rate(Number("spine_rate", 1e10))));
  far.SetChannelAttribute("Delay", TimeValue(NanoSeconds(Number("link_delay_ns", 1000))));
  for (auto* helper : {&near, &far}) helper->SetQueue("ns3::DropTailQueue<Packet>", "MaxSize", StringValue("1p"));

  std::vector<uint32_t> hostInterface(hosts), leafToHost(hosts);
  for (uint32_t host = 0; host < hosts; host++) {
    const uint32_t rack = host / perRack;
    NetDeviceContainer link = near.Install(nodes.Get(host), leaves.Get(rack));
    Attach(link, 1, "down", rack, host);
    Attach(link, 0, "host", host, rack);
    Ptr<Ipv4> ip = nodes.Get(host)->GetObject<Ipv4>(), leafIp = leaves.Get(rack)->GetObject<Ipv4>();
    hostInterface[host] = ip->AddInterface(link.Get(0));
    leafToHost[host] = leafIp->AddInterface(link.Get(1));
    for (uint32_t way = 0; way < ways; way++) {
      const Ipv4Address address((10u << 24) | (way << 16) | (host + 1));
      ip->AddAddress(hostInterface[host], Ipv4InterfaceAddress(address, Ipv4Mask("255.255.255.255")));
      addresses[host].push_back(address);
      routing.GetStaticRouting(leafIp)->AddHostRouteTo(address, leafToHost[host]);
    }
    ip->SetUp(hostInterface[host]);
    leafIp->AddAddress(leafToHost[host], Ipv4InterfaceAddress(Ipv4Address((11u << 24) | (host + 1)), Ipv4Mask("255.255.255.255")));
    leafIp->SetUp(leafToHost[host]);
    routing.GetStaticRouting(ip)->SetDefaultRoute(Ipv4Address((11u << 24) | (host + 1)), hostInterface[host]);
  }
  for (uint32_t rack = 0; rack < racks && spines; rack++) {
    for (uint32_t spine = 0; spine < spines; spine++) {
      NetDeviceContainer link = far.Install(leaves.Get(rack), tops.Get(spine));
      Attach(link, 0, "up", rack, spine);
      Attach(link, 1, "spine", spine, rack);
      Ptr<Ipv4> leafIp = leaves.Get(rack)->GetObject<Ipv4>(), topIp = tops.Get(spine)->GetObject<Ipv4>();
      const uint32_t up = leafIp->AddInterface(link.Get(0)), down = topIp->AddInterface(link.Get(1));
      const uint32_t number = rack * spines + spine + 1;
      leafIp->AddAddress(up, Ipv4InterfaceAddress(Ipv4Address((12u << 24) | number), Ipv4Mask("255.255.255.255")));
      topIp->AddAddress(down, Ipv4InterfaceAddress(Ipv4Address((13u << 24) | number), Ipv4Mask("255.255.255.255")));
      leafIp->SetUp(up);
      topIp->SetUp(down);
      for (uint32_t host = 0; host < hosts; host++) {
        const Ipv4Address address = addresses[host][spine];
        if (host / perRack == rack) {
          routing.GetStaticRouting(topIp)->AddHostRouteTo(address, down);
        } else {
          routing.GetStaticRouting(leafIp)->AddHostRouteTo(address, up);
        }
      }
    }
  }

  for (uint32_t index = 0; index < flows.size(); index++) {
    auto run = std::make_unique<FlowRun>();
    run->index = index;
    run->spec = flows[index];
    const FlowSpec& spec = run->spec;
    const uint32_t way = Spread(index) % ways;
    const uint16_t port = 1024 + index % 60000;
    run->listener = Socket::CreateSocket(nodes.Get(spec.destination), TcpSocketFactory::GetTypeId());
    run->listener->Bind(InetSocketAddress(addresses[spec.destination][way], port));
    run->listener->Listen();
    run->listener->SetAcceptCallback(MakeNullCallback<bool, Ptr<Socket>, const Address&>(),
                                     MakeBoundCallback(&Accepted, run.get()));
    run->sender = Socket::CreateSocket(nodes.Get(spec.source), TcpSocketFactory::GetTypeId());
    run->sender->Bind(InetSocketAddress(addresses[spec.source][way], port));
    run->sender->SetSendCallback(MakeBoundCallback(&Writable, run.get()));
    run->sender->TraceConnectWithoutContext("CongState", MakeCallback(&CaState));
    const Time start = kSetUp + NanoSeconds(spec.startNs);
    // All times of a case are later by the time that connections have to be set up.
    run->spec.startNs += kSetUp.GetNanoSeconds();
    const InetSocketAddress to(addresses[spec.destination][way], port);
    Simulator::Schedule(start - kSetUp, [sender = run->sender, to]() { sender->Connect(to); });
    Simulator::Schedule(start, &Begin, run.get());
    runs.push_back(std::move(run));
  }
  if (Number("sample_ns", 0) > 0) {
    const Time every = NanoSeconds(Number("sample_ns", 0));
    Simulator::Schedule(kSetUp + NanoSeconds(Number("sample_from_ns", 0)), &Sample, every);
  }
  Simulator::Stop(kSetUp + NanoSeconds(Number("until_ns", 1e9)));
  Simulator::Run();
  for (auto& run : runs) {
    if (run->received < run->spec.bytes) {
      std::cout << "flow " << run->index << " -1 " << run->received << "\n";
    }
  }
  for (auto& port : ports) {
    const QueueDisc::Stats& stats = port->disc->GetStats();
    const double mean = port->samples ? port->queued / port->samples : 0;
    std::cout << "port " << port->kind << " " << port->from << " " << port->to << " " << port->sent << " "
              << port->marked << " " << stats.nTotalDroppedPackets << " " << mean << "\n";
  }
  std::cout << "timeouts " << timeouts << "\n";
  Simulator::Destroy();
}
